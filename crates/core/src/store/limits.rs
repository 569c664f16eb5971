//! Limits, what is used and reserved of them, and imported prices.

use super::{Stored, processes::ProcessId};
use crate::{
    LimitRules, LimitSubject, Price, RateLimits,
    audit::AuditDraft,
    limits::{LimitDemand, LimitRecord, LimitRefusal, UsedAmounts},
    scope::Operator,
};

/// What a turn or a model call reserves of all limits that apply to it, in one step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LimitReservation {
    /// `hold_…`. Reserving again with the same id has no further effect.
    pub hold_id: String,
    /// The process that settles the hold, as long as it lives.
    pub process: ProcessId,
    /// The subjects whose limits apply. A subject without a limit allows everything.
    pub subjects: Vec<LimitSubject>,
    /// The amounts to reserve.
    pub demand: LimitDemand,
    /// Milliseconds since 1970.
    pub now_ms: u64,
}

/// The outcome of a reservation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReserveOutcome {
    /// All limits allow it.
    Granted {
        /// Whether a limit counts the reservation, so that the hold has to be settled.
        held: bool,
        /// The remaining amounts.
        rate_limits: RateLimits,
    },
    /// Nothing was reserved.
    Refused {
        /// The first limit that refuses.
        refusal: LimitRefusal,
        /// The remaining amounts.
        rate_limits: RateLimits,
    },
}

/// The end of a hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HoldSettlement {
    /// `hold_…`
    pub hold_id: String,
    /// The amounts that were used; `None` if they are unknown, and then the reserved amounts count as used.
    pub used: Option<UsedAmounts>,
    /// Milliseconds since 1970.
    pub now_ms: u64,
}

/// An imported price of a model.
#[derive(Debug, Clone, PartialEq)]
pub struct PriceRecord {
    /// The model's name in the imported list, in lower case: `gpt-4o-mini`, `groq/llama-3.1-8b-instant`.
    pub model: String,
    /// The price.
    pub price: Price,
    /// When it was imported, in milliseconds since 1970.
    pub imported_at_ms: u64,
}

/// Limits and imported prices. Processes cache limits; [`LimitStore::reserve`] reads the current rows.
pub trait LimitStore: Send + Sync {
    /// Returns a number that changes with every change of a limit or an imported price.
    fn limits_version(&self, operator: Operator) -> Stored<'_, u64>;

    /// Returns at most `limit` limits after `after`, sorted by subject: all, or those of a tenant, its keys and its
    /// users.
    fn limits<'a>(
        &'a self,
        operator: Operator,
        tenant_id: Option<i64>,
        after: Option<&'a LimitSubject>,
        limit: usize,
    ) -> Stored<'a, Vec<LimitRecord>>;

    /// Returns a limit; `None` if the subject has none.
    fn limit<'a>(&'a self, operator: Operator, subject: &'a LimitSubject) -> Stored<'a, Option<LimitRecord>>;

    /// Adds a limit or replaces its rules, and returns it; see [`LimitRecord::change`].
    fn put_limit(
        &self,
        operator: Operator,
        subject: LimitSubject,
        rules: LimitRules,
        now_ms: u64,
        audit: AuditDraft,
    ) -> Stored<'_, LimitRecord>;

    /// Deletes a limit and its counters. Returns `false` if there is none.
    fn delete_limit(&self, operator: Operator, subject: LimitSubject, audit: AuditDraft) -> Stored<'_, bool>;

    /// Reserves the demanded amounts of all limits, or of none if one of them refuses. Implementations lock the rows in
    /// the order of their subjects.
    fn reserve(&self, operator: Operator, reservation: LimitReservation) -> Stored<'_, ReserveOutcome>;

    /// Settles holds. Settling a hold again has no effect. The writes of turns settle holds in the same way, with
    /// [`TurnWrite::settlements`](super::TurnWrite::settlements).
    fn settle_holds(&self, operator: Operator, settlements: Vec<HoldSettlement>) -> Stored<'_, ()>;

    /// Returns the ids of a process's holds that are not settled.
    fn holds(&self, operator: Operator, process: ProcessId) -> Stored<'_, Vec<String>>;

    /// Settles the holds of processes that are not registered any more: the reserved amounts count as used. Returns how
    /// many.
    fn settle_dead_holds(&self, operator: Operator, now_ms: u64) -> Stored<'_, u64>;

    /// Adds or replaces imported prices.
    fn put_prices(&self, operator: Operator, prices: Vec<PriceRecord>, audit: AuditDraft) -> Stored<'_, ()>;

    /// Returns at most `limit` imported prices with names above `after`, sorted by name.
    fn prices<'a>(&'a self, operator: Operator, after: Option<&'a str>, limit: usize) -> Stored<'a, Vec<PriceRecord>>;
}
