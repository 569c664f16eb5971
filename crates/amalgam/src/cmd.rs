//! One file per command.

pub(crate) mod approvals;
pub(crate) mod backup;
pub(crate) mod chat;
pub(crate) mod check;
pub(crate) mod completion;
pub(crate) mod configs;
pub(crate) mod copy;
pub(crate) mod courses;
pub(crate) mod doctor;
pub(crate) mod keys;
pub(crate) mod knowledge;
pub(crate) mod migrate;
pub(crate) mod modes;
pub(crate) mod openapi;
pub(crate) mod profiles;
pub(crate) mod reset;
pub(crate) mod restore;
pub(crate) mod seed;
pub(crate) mod serve;
pub(crate) mod sessions;
pub(crate) mod tenants;
pub(crate) mod tools;
pub(crate) mod turns;
pub(crate) mod usage;
pub(crate) mod version;
