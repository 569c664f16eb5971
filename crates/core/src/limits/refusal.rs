//! Why a limit refuses, and the fault that a caller gets.

use std::time::Duration;

use crate::{
    Budget, LimitSubject,
    fault::{Fault, FaultKind},
};

/// The first limit that refuses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LimitRefusal {
    /// The subject of the limit.
    pub subject: LimitSubject,
    /// The reason.
    pub reason: LimitReason,
    /// Milliseconds until it may allow the same; none if it will not.
    pub retry_after_ms: Option<u64>,
}

/// Why a limit refuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LimitReason {
    /// Too many turns began in this minute.
    Requests {
        /// The limit.
        limit: u64,
    },
    /// The call does not fit into what is left of this minute.
    Tokens {
        /// The limit.
        limit: u64,
        /// The used and reserved amount.
        taken: u64,
        /// The amount that the call may use.
        needed: u64,
    },
    /// Too many turns run.
    InFlight {
        /// The limit.
        limit: u64,
    },
    /// The call does not fit into what is left of the budget.
    BudgetSpent {
        /// The budget.
        budget: Budget,
        /// The used amount.
        spent: u64,
        /// The amount that the call may use.
        needed: u64,
    },
    /// The call fits into the budget only if running calls use less than they have reserved.
    BudgetReserved {
        /// The budget.
        budget: Budget,
        /// The used amount.
        spent: u64,
        /// The amount that running calls have reserved.
        reserved: u64,
        /// The amount that the call may use.
        needed: u64,
    },
    /// The budget is in money, and the model has no price.
    NotPriced,
}

impl LimitReason {
    /// The name of the rule in the API.
    pub const fn rule(&self) -> &'static str {
        match self {
            Self::Requests { .. } => "requests_per_minute",
            Self::Tokens { .. } => "tokens_per_minute",
            Self::InFlight { .. } => "in_flight",
            Self::BudgetSpent { .. } | Self::BudgetReserved { .. } | Self::NotPriced => "budget",
        }
    }
}

impl LimitRefusal {
    /// The fault that the caller gets.
    pub fn to_fault(&self) -> Fault {
        let (rule, of) = (self.reason.rule(), self.subject.shown());
        let (kind, message) = match self.reason {
            LimitReason::Requests { limit } => {
                (FaultKind::RateLimited, format!("Rate limit reached for {of}: {rule} is {limit}."))
            }
            LimitReason::Tokens { limit, taken, needed } => (
                FaultKind::RateLimited,
                format!(
                    "Rate limit reached for {of}: {rule} is {limit}, {taken} are used or reserved, and this call may use \
                     {needed}."
                ),
            ),
            LimitReason::InFlight { limit } => (
                FaultKind::RateLimited,
                format!("Rate limit reached for {of}: {rule} is {limit}, and so many of its turns are running."),
            ),
            LimitReason::BudgetReserved { budget, spent, reserved, needed } => (
                FaultKind::RateLimited,
                format!(
                    "Rate limit reached for {of}: the {rule} is {}{}, of which {} are used and {} are reserved by running \
                     calls, and this call may use {}.",
                    budget.shown(budget.amount),
                    budget.period.shown(),
                    budget.shown(spent),
                    budget.shown(reserved),
                    budget.shown(needed)
                ),
            ),
            LimitReason::BudgetSpent { budget, spent, needed } => (
                FaultKind::QuotaExceeded,
                format!(
                    "The {rule} of {of} is spent: it is {}{}, {} are used, and this call may use {}.",
                    budget.shown(budget.amount),
                    budget.period.shown(),
                    budget.shown(spent),
                    budget.shown(needed)
                ),
            ),
            LimitReason::NotPriced => (
                FaultKind::Forbidden,
                format!("The {rule} of {of} is in US dollars, and the model has no price, so it cannot be used."),
            ),
        };
        let fault = Fault::new(kind, message).retry_after(self.retry_after_ms.map(Duration::from_millis));
        match self.reason {
            LimitReason::NotPriced => fault.param("model").code("model_not_priced"),
            _ => fault,
        }
    }
}
