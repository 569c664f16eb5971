//! One file per command.

pub(crate) mod check;
pub(crate) mod completion;
pub(crate) mod doctor;
#[expect(dead_code, reason = "joins the commands once the server publishes its document")]
pub(crate) mod openapi;
pub(crate) mod serve;
pub(crate) mod version;
