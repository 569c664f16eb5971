//! Limits, what is used and reserved of them, and imported prices.

use super::{Stored, processes::ProcessId};
use crate::{
    LimitRules, LimitSubject, Price, RateLimits,
    audit::AuditDraft,
    limits::{LimitDemand, LimitRecord, LimitRefusal, UsedAmounts},
    scope::Operator,
};

/// What a turn or a model call asks of the limits that apply to it, all at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LimitReservation {
    /// `hold_…`; the same reservation is made once.
    pub hold_id: String,
    /// The process that settles the hold, as long as it lives.
    pub process: ProcessId,
    /// The limits that apply. Those that do not exist allow everything.
    pub subjects: Vec<LimitSubject>,
    /// What is asked for.
    pub demand: LimitDemand,
    /// Milliseconds since 1970.
    pub now_ms: u64,
}

/// The outcome of a reservation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReserveOutcome {
    /// All limits allow it.
    Granted {
        /// Whether a limit has counted it, so that the hold has to be settled.
        held: bool,
        /// What is left now.
        rate_limits: RateLimits,
    },
    /// Nothing was reserved.
    Refused {
        /// The first limit that refuses.
        refusal: LimitRefusal,
        /// What is left.
        rate_limits: RateLimits,
    },
}

/// The end of a hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HoldSettlement {
    /// `hold_…`
    pub hold_id: String,
    /// What was used; none if that is not known, and then what was reserved counts.
    pub used: Option<UsedAmounts>,
    /// Milliseconds since 1970.
    pub now_ms: u64,
}

/// A price of a model that was imported.
#[derive(Debug, Clone, PartialEq)]
pub struct PriceRecord {
    /// The model's name in the imported list, in lower case: `gpt-4o-mini`, `groq/llama-3.1-8b-instant`.
    pub model: String,
    /// The price.
    pub price: Price,
    /// When it was imported, in milliseconds since 1970.
    pub imported_at_ms: u64,
}

/// Limits. What a process remembers of them may be a moment old; [`LimitStore::reserve`] reads the rows.
pub trait LimitStore: Send + Sync {
    /// A number that changes with every limit and every imported price.
    fn limits_version(&self, operator: Operator) -> Stored<'_, u64>;

    /// Limits in the order of their subjects, behind `after`: all, or those of a tenant and its keys and users.
    fn limits<'a>(
        &'a self,
        operator: Operator,
        tenant_id: Option<i64>,
        after: Option<&'a LimitSubject>,
        limit: usize,
    ) -> Stored<'a, Vec<LimitRecord>>;

    /// One limit.
    fn limit<'a>(&'a self, operator: Operator, subject: &'a LimitSubject) -> Stored<'a, Option<LimitRecord>>;

    /// Makes a limit or replaces its rules; see [`LimitRecord::change`].
    fn put_limit(
        &self,
        operator: Operator,
        subject: LimitSubject,
        rules: LimitRules,
        now_ms: u64,
        audit: AuditDraft,
    ) -> Stored<'_, LimitRecord>;

    /// Deletes a limit with its counters; `false` if there is none.
    fn delete_limit(&self, operator: Operator, subject: LimitSubject, audit: AuditDraft) -> Stored<'_, bool>;

    /// Checks all limits and reserves of all, or of none. The rows are locked in the order of their subjects.
    fn reserve(&self, operator: Operator, reservation: LimitReservation) -> Stored<'_, ReserveOutcome>;

    /// Ends holds, each once: a hold that was settled before is not counted again. The writes of turns do the same with
    /// [`TurnWrite::settlements`](super::TurnWrite::settlements).
    fn settle_holds(&self, operator: Operator, settlements: Vec<HoldSettlement>) -> Stored<'_, ()>;

    /// The holds of a process that are not settled.
    fn holds(&self, operator: Operator, process: ProcessId) -> Stored<'_, Vec<String>>;

    /// Ends the holds of processes that are not registered any more: what they had reserved counts as used. Returns how many.
    fn settle_dead_holds(&self, operator: Operator, now_ms: u64) -> Stored<'_, u64>;

    /// Adds or replaces imported prices.
    fn put_prices(&self, operator: Operator, prices: Vec<PriceRecord>, audit: AuditDraft) -> Stored<'_, ()>;

    /// Imported prices by name, behind `after`.
    fn prices<'a>(&'a self, operator: Operator, after: Option<&'a str>, limit: usize) -> Stored<'a, Vec<PriceRecord>>;
}
