//! Runs turns: time, order, cancellation, admission.

mod admission;
mod allowed;
mod frames;
mod run;

pub use admission::Admission;
pub use frames::Frames;
pub use run::{Ask, Engine, EngineSettings, Run};
