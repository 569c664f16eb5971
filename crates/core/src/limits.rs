//! Limits of tenants, keys, users and models: what may be used, what is used, and the arithmetic between the two.
//!
//! A [`LimitRecord`] is the row of one limit: its rules and its counters. The store locks the rows that apply to a turn or a
//! model call, asks them here, and writes them back. Windows are fixed: a call counts in the minute, the day or the month (UTC)
//! in which it was reserved, also if it ends in a later one.

mod counters;
mod refusal;

pub use counters::{HoldShare, LimitCounters, LimitDemand, LimitRecord, UsedAmounts};
pub use refusal::{LimitReason, LimitRefusal};
