//! One file per command.

pub(crate) mod check;
pub(crate) mod completion;
pub(crate) mod doctor;
pub(crate) mod openapi;
pub(crate) mod serve;
pub(crate) mod version;
