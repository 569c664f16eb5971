//! What a turn is and what happens next; pure, without clock, network or database.

mod fault;
mod history;
mod ids;
mod loss;
mod model;
mod ports;
mod toolset;

pub use fault::{Fault, FaultKind};
pub use history::{Call, Entry, History, Output, Payload};
pub use ids::{IdKind, Ids};
pub use loss::Loss;
pub use model::{
    CallHead, Delivery, Finish, Model, ModelError, ModelEvent, ModelRequest, ModelStream, Note, Prepared,
};
pub use ports::{BoxFuture, Fetch, Fetched, Seal};
pub use toolset::{CallKind, CallMap, CallTarget, Choice, Offer, Toolset, Words, unwrap_custom, wire_name};
