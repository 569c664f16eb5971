//! One file per command.

pub(crate) mod approvals;
pub(crate) mod audit;
pub(crate) mod chat;
pub(crate) mod check;
pub(crate) mod completion;
pub(crate) mod courses;
pub(crate) mod doctor;
pub(crate) mod keys;
pub(crate) mod knowledge;
pub(crate) mod migrate;
pub(crate) mod modes;
pub(crate) mod openapi;
pub(crate) mod reset;
pub(crate) mod seed;
pub(crate) mod serve;
pub(crate) mod tenants;
pub(crate) mod tools;
pub(crate) mod version;
