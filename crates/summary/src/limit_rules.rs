//! What a limit is about, and what it allows.

use crate::turn_summary::Cost;

/// The tenant of limits that belong to the installation.
const OF_ALL_TENANTS: i64 = 0;

/// What limits are about. Declared in the order in which their rows are locked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LimitKind {
    /// A tenant.
    Tenant,
    /// A key.
    Key,
    /// A user of a tenant.
    User,
    /// A model, for all tenants.
    Model,
}

impl LimitKind {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Tenant, Self::Key, Self::User, Self::Model];

    /// The name in the store and in paths.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tenant => "tenants",
            Self::Key => "keys",
            Self::User => "users",
            Self::Model => "models",
        }
    }

    /// One of its kind, in messages.
    pub const fn singular(self) -> &'static str {
        match self {
            Self::Tenant => "tenant",
            Self::Key => "key",
            Self::User => "user",
            Self::Model => "model",
        }
    }

    /// The kind with this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// The tenant, key, user or model that a limit is about. Rows are locked in the order of subjects.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LimitSubject {
    /// What it is.
    pub kind: LimitKind,
    /// The tenant that it belongs to; 0, the installation itself, for a model.
    pub tenant_id: i64,
    /// The tenant's number, the key's id, the user's or the model's name.
    pub id: String,
}

impl LimitSubject {
    /// A tenant.
    pub fn tenant(tenant_id: i64) -> Self {
        Self { kind: LimitKind::Tenant, tenant_id, id: tenant_id.to_string() }
    }

    /// A key of a tenant.
    pub fn key(tenant_id: i64, id: impl Into<String>) -> Self {
        Self { kind: LimitKind::Key, tenant_id, id: id.into() }
    }

    /// A user of a tenant.
    pub fn user(tenant_id: i64, id: impl Into<String>) -> Self {
        Self { kind: LimitKind::User, tenant_id, id: id.into() }
    }

    /// A model.
    pub fn model(id: impl Into<String>) -> Self {
        Self { kind: LimitKind::Model, tenant_id: OF_ALL_TENANTS, id: id.into() }
    }

    /// The name under which the store notifies turns that wait until they may run.
    pub fn topic(&self) -> String {
        format!("limits/{}/{}/{}", self.kind.name(), self.tenant_id, self.id)
    }

    /// How messages name it: `key key_1`.
    pub fn shown(&self) -> String {
        format!("{} {}", self.kind.singular(), self.id)
    }
}

/// What a limit allows. What is not set is not limited.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LimitRules {
    /// Turns that begin in a minute.
    pub requests_per_minute: Option<u64>,
    /// Tokens of the model calls that begin in a minute.
    pub tokens_per_minute: Option<u64>,
    /// Turns that run at once.
    pub in_flight: Option<u64>,
    /// What model calls may use in a period.
    pub budget: Option<Budget>,
    /// The only models that may be used.
    pub models: Option<Vec<String>>,
    /// The only server-run tools that may be used.
    pub tools: Option<Vec<String>>,
}

impl LimitRules {
    /// Whether turns are counted.
    pub fn counts_turns(&self) -> bool {
        self.requests_per_minute.is_some() || self.in_flight.is_some()
    }

    /// Whether the tokens or the cost of model calls are counted.
    pub fn counts_calls(&self) -> bool {
        self.tokens_per_minute.is_some() || self.budget.is_some()
    }
}

/// An amount for a period.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    /// Tokens, or billionths of a US dollar.
    pub amount: u64,
    /// What is counted.
    pub unit: BudgetUnit,
    /// When it begins anew.
    pub period: BudgetPeriod,
}

impl Budget {
    /// The amount that tokens and their cost are of this budget; none if it is in money and the cost is unknown.
    pub fn share(&self, tokens: u64, cost: Option<Cost>) -> Option<u64> {
        match self.unit {
            BudgetUnit::Tokens => Some(tokens),
            BudgetUnit::Usd => cost.map(Cost::nano_usd),
        }
    }

    /// An amount of this budget with its unit, for messages.
    pub fn shown(&self, amount: u64) -> String {
        match self.unit {
            BudgetUnit::Tokens => format!("{amount} tokens"),
            BudgetUnit::Usd => format!("{} USD", usd_text(amount)),
        }
    }
}

/// Billionths of a US dollar as dollars, exactly and without needless digits.
fn usd_text(nano_usd: u64) -> String {
    let (whole, rest) = (nano_usd / 1_000_000_000, nano_usd % 1_000_000_000);
    let text = format!("{whole}.{rest:09}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// What a budget counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BudgetUnit {
    /// US dollars, by the prices of models.
    Usd,
    /// Tokens of prompts and answers.
    Tokens,
}

impl BudgetUnit {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Usd, Self::Tokens];

    /// The name in the store and in the API.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Usd => "usd",
            Self::Tokens => "tokens",
        }
    }

    /// The unit with this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|unit| unit.name() == name)
    }
}

/// When a budget begins anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BudgetPeriod {
    /// At midnight in UTC.
    Day,
    /// On the first of a month, at midnight in UTC.
    Month,
    /// Never.
    Total,
}

impl BudgetPeriod {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Day, Self::Month, Self::Total];

    /// The name in the store and in the API.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Day => "day",
            Self::Month => "month",
            Self::Total => "total",
        }
    }

    /// The period with this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|period| period.name() == name)
    }

    /// How messages name the limit: ` per day`, or nothing for a total.
    pub const fn shown(self) -> &'static str {
        match self {
            Self::Day => " per day",
            Self::Month => " per month",
            Self::Total => " in all",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn money_is_shown_exactly() {
        let shown = |nano| usd_text(nano);
        assert_eq!((shown(5_000_000_000), shown(12_500_000), shown(0)), ("5".into(), "0.0125".into(), "0".into()));
        assert_eq!(shown(1_000_000_001), "1.000000001");
        assert_eq!(shown(10_000_000_000), "10");
    }
}
