//! Runs turns: time, order, cancellation, admission; keeps them as they go, and looks after those that wait.

mod admission;
mod allowed;
mod ask;
mod background;
mod calls;
mod drive;
mod fitting;
mod follow;
mod format;
mod frames;
mod images;
mod keeper;
mod life;
mod loss_log;
mod record;
mod remembering;
mod rounds;
mod run;
mod tasks;
mod thread;
mod tooling;
mod uploads;
mod work;

pub use admission::Admission;
pub use ask::Question;
pub use background::{QueueLimits, QueuePlace};
pub use follow::look;
pub use format::AnswerFormat;
pub use frames::Frames;
pub use keeper::InHand;
pub use life::{LifeSettings, Runner};
pub use record::Keep;
pub use run::{Ask, Engine, EngineSettings, Identity, Run};
pub use thread::Thread;
pub use tooling::{Plan, ToolLimits, Tooling};
pub use uploads::FILES_PER_TURN;
