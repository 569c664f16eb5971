//! Limits of tenants, keys, users and models.
//!
//! An operator manages all of them. An administrator manages those of its tenant's keys and users, and sees its tenant's own.

mod put_limit;

use amalgam_app::not_found;
use amalgam_core::{
    AuditAction, Budget, BudgetPeriod, BudgetUnit, Cost, Fault, FaultKind, INSTALLATION, LimitKind, LimitRecord,
    LimitSubject, Operator, Scope, store::Page,
};
use bytes::Bytes;
use schemars::JsonSchema;
use serde::{Serialize, Serializer};

use super::{
    Administration,
    access::{TENANT, known_id, no_tenant, number_id, operator, target_tenant},
    audit::snapshot,
    fields::{UnixSeconds, Word},
    keys::tenant_of_configured_key,
    list::List,
    request::wrong,
};

pub(super) use put_limit::PutLimit;

/// The limit in not-found errors.
const LIMIT: &str = "Limit";
const KEY: &str = "API key";

const PUT: AuditAction = AuditAction::new("limit.put");
const DELETE: AuditAction = AuditAction::new("limit.delete");

/// The longest name of a user or a model.
const LONGEST_NAME: usize = 256;

/// What a tenant, a key, a user or a model may use, and what is used.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Limit")]
pub struct LimitView {
    #[schemars(extend("const" = "limit"))]
    object: &'static str,
    /// What the limit is about.
    pub kind: Word<LimitKind>,
    /// The tenant's number, the key's id, the name of the user or of the model.
    pub id: String,
    /// The tenant that it belongs to; null for a model.
    pub tenant_id: Option<i64>,
    /// Turns that may begin in a minute.
    pub requests_per_minute: Option<u64>,
    /// Tokens that model calls of a minute may use.
    pub tokens_per_minute: Option<u64>,
    /// Turns that may run at once.
    pub in_flight: Option<u64>,
    /// What model calls may use in a period.
    pub budget: Option<BudgetView>,
    /// The only models that may be used; null for all.
    pub models: Option<Vec<String>>,
    /// The only server-run tools that may be used; null for all.
    pub tools: Option<Vec<String>>,
    /// What is used and reserved now.
    pub usage: LimitUsage,
    updated_at: UnixSeconds,
}

/// An amount for a period.
#[derive(Debug, Clone, Copy, Serialize, JsonSchema)]
#[schemars(rename = "Budget")]
pub struct BudgetView {
    /// US dollars or tokens.
    pub amount: Amount,
    /// What is counted.
    pub unit: Word<BudgetUnit>,
    /// When it begins anew: each day or month (UTC), or never.
    pub period: Word<BudgetPeriod>,
}

// What is used and reserved now; null where nothing is limited.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
#[expect(missing_docs, reason = "a doc comment would be a description in the OpenAPI document")]
pub struct LimitUsage {
    pub requests_per_minute: Option<WindowUsage>,
    pub tokens_per_minute: Option<WindowUsage>,
    /// Turns that run now.
    pub in_flight: Option<u64>,
    pub budget: Option<WindowUsage>,
}

// What is used of one window.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
#[expect(missing_docs, reason = "a doc comment would be a description in the OpenAPI document")]
pub struct WindowUsage {
    /// By what has ended.
    pub used: Amount,
    /// By model calls that run.
    pub reserved: Amount,
    pub remaining: Amount,
    /// Unix time in seconds; null for a budget that never begins anew.
    pub resets_at: Option<UnixSeconds>,
}

/// A number of tokens or requests, or an amount of money.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Amount {
    /// Tokens or requests.
    Count(u64),
    /// US dollars.
    Usd(Cost),
}

impl Serialize for Amount {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Count(count) => serializer.serialize_u64(*count),
            Self::Usd(cost) => serializer.serialize_f64(cost.usd()),
        }
    }
}

impl std::fmt::Display for Amount {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Count(count) => write!(formatter, "{count}"),
            Self::Usd(cost) => write!(formatter, "{}", cost.usd()),
        }
    }
}

impl JsonSchema for Amount {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Amount".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({"type": "number", "minimum": 0})
    }
}

impl LimitView {
    /// A limit as it is at a time.
    fn of(mut record: LimitRecord, now_ms: u64) -> Self {
        record.roll(now_ms);
        let (rules, counters) = (&record.rules, &record.counters);
        let window = |limit: u64, used: u64, reserved: u64| WindowUsage {
            used: Amount::Count(used),
            reserved: Amount::Count(reserved),
            remaining: Amount::Count(limit.saturating_sub(used).saturating_sub(reserved)),
            resets_at: Some(UnixSeconds::from_ms(record.minute_ends_at_ms())),
        };
        let of_budget = |budget: &Budget| {
            let (used, reserved) = (counters.spent, counters.spent_reserved);
            WindowUsage {
                used: amount(budget, used),
                reserved: amount(budget, reserved),
                remaining: amount(budget, budget.amount.saturating_sub(used).saturating_sub(reserved)),
                resets_at: record.period_ends_at_ms().map(UnixSeconds::from_ms),
            }
        };
        let usage = LimitUsage {
            requests_per_minute: rules.requests_per_minute.map(|limit| window(limit, counters.requests, 0)),
            tokens_per_minute: rules
                .tokens_per_minute
                .map(|limit| window(limit, counters.tokens, counters.tokens_reserved)),
            in_flight: rules.in_flight.map(|_| counters.in_flight),
            budget: rules.budget.as_ref().map(of_budget),
        };
        Self {
            object: "limit",
            kind: Word(record.subject.kind),
            tenant_id: (record.subject.kind != LimitKind::Model).then_some(record.subject.tenant_id),
            requests_per_minute: rules.requests_per_minute,
            tokens_per_minute: rules.tokens_per_minute,
            in_flight: rules.in_flight,
            budget: rules.budget.map(|budget| BudgetView {
                amount: amount(&budget, budget.amount),
                unit: Word(budget.unit),
                period: Word(budget.period),
            }),
            usage,
            updated_at: UnixSeconds::from_ms(record.updated_at_ms),
            id: record.subject.id,
            models: record.rules.models,
            tools: record.rules.tools,
        }
    }

    /// `after` of a list: the subject.
    fn cursor(&self) -> String {
        format!("{}/{}/{}", self.kind.0.name(), self.tenant_id.unwrap_or(INSTALLATION), self.id)
    }
}

fn amount(budget: &Budget, amount: u64) -> Amount {
    match budget.unit {
        BudgetUnit::Tokens => Amount::Count(amount),
        BudgetUnit::Usd => Amount::Usd(Cost::from_nano_usd(amount)),
    }
}

fn subject_of_cursor(cursor: &str) -> Option<LimitSubject> {
    let mut parts = cursor.splitn(3, '/');
    let kind = LimitKind::named(parts.next()?)?;
    Some(LimitSubject { kind, tenant_id: parts.next()?.parse().ok()?, id: parts.next()?.to_owned() })
}

/// What is done with a limit.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Access {
    Read,
    Change,
}

impl Administration<'_> {
    /// Limits: of the named tenant with its keys and users, or of all tenants that the caller can access.
    pub async fn limits(
        &self,
        scope: &Scope,
        named: Option<i64>,
        page: &Page,
    ) -> Result<List<LimitView, String>, Fault> {
        // An operator's list has those of models too, which belong to no tenant.
        let tenant_id = match scope.operator() {
            Some(_) => named,
            None => target_tenant(scope, named)?,
        };
        let read = |after: &String| {
            subject_of_cursor(after).ok_or_else(|| wrong("after", "must be `last_id` of the page before"))
        };
        let after = page.after.as_ref().map(read).transpose()?;
        let found = self.store.limits(process(), tenant_id, after.as_ref(), page.limit + 1).await?;
        let views = found.into_iter().map(|record| LimitView::of(record, self.now_ms)).collect();
        Ok(List::new(views, page.limit, LimitView::cursor))
    }

    /// A limit, with the used amounts.
    pub async fn limit(
        &self,
        scope: &Scope,
        kind: LimitKind,
        id: &str,
        tenant: Option<i64>,
    ) -> Result<LimitView, Fault> {
        let subject = self.subject(scope, kind, id, tenant, Access::Read).await?;
        let found = self.store.limit(process(), &subject).await?;
        Ok(LimitView::of(found.ok_or_else(|| not_found(LIMIT, &name(&subject)))?, self.now_ms))
    }

    /// Creates or replaces the limit that `body` describes; true if there was none. What is used stays counted, unless the
    /// budget has another unit or period.
    pub async fn put_limit(
        &self,
        scope: &Scope,
        kind: LimitKind,
        id: &str,
        tenant: Option<i64>,
        body: &Bytes,
    ) -> Result<(LimitView, bool), Fault> {
        let rules = put_limit::read(body)?;
        let subject = self.subject(scope, kind, id, tenant, Access::Change).await?;
        let before = self.store.limit(process(), &subject).await?;
        let is_new = before.is_none();
        let shown = |record: LimitRecord| snapshot(&rules_view(LimitView::of(record, self.now_ms)));
        let after = LimitRecord::new(subject.clone(), rules.clone(), 0, self.now_ms);
        let audit =
            self.change(subject.tenant_id, PUT, name(&subject)).before(before.and_then(shown)).after(shown(after));
        let record = self.store.put_limit(process(), subject, rules, self.now_ms, audit).await?;
        Ok((LimitView::of(record, self.now_ms), is_new))
    }

    /// Deletes a limit with its counters.
    pub async fn delete_limit(
        &self,
        scope: &Scope,
        kind: LimitKind,
        id: &str,
        tenant: Option<i64>,
    ) -> Result<(), Fault> {
        let subject = self.subject(scope, kind, id, tenant, Access::Change).await?;
        let shown = |record: LimitRecord| snapshot(&rules_view(LimitView::of(record, self.now_ms)));
        let before = self.store.limit(process(), &subject).await?.and_then(shown);
        let audit = self.change(subject.tenant_id, DELETE, name(&subject)).before(before);
        match self.store.delete_limit(process(), subject.clone(), audit).await? {
            true => Ok(()),
            false => Err(not_found(LIMIT, &name(&subject))),
        }
    }

    /// The subject that a path names, if the caller has this access to its limit.
    async fn subject(
        &self,
        scope: &Scope,
        kind: LimitKind,
        id: &str,
        tenant: Option<i64>,
        access: Access,
    ) -> Result<LimitSubject, Fault> {
        match kind {
            LimitKind::Model => {
                operator(scope)?;
                is_name(id).then(|| LimitSubject::model(id)).ok_or_else(|| not_found(LIMIT, id))
            }
            LimitKind::Tenant => {
                let tenant_id: i64 = number_id(TENANT, id)?;
                if access == Access::Change && scope.operator().is_none() {
                    let message = "Only the operator may change the limit of a tenant.";
                    return Err(Fault::new(FaultKind::Forbidden, message));
                }
                target_tenant(scope, Some(tenant_id))?;
                self.existing_tenant(scope, tenant_id).await?;
                Ok(LimitSubject::tenant(tenant_id))
            }
            LimitKind::Key => {
                let named = target_tenant(scope, tenant)?;
                // Keys of the configuration are not in the store; their ids name the tenant.
                if let Some(tenant_id) = tenant_of_configured_key(id) {
                    let reached = named.filter(|_| tenant.is_some() || scope.operator().is_none());
                    if reached.is_some_and(|reached| reached != tenant_id) {
                        return Err(not_found(KEY, id));
                    }
                    self.existing_tenant(scope, tenant_id).await?;
                    return Ok(LimitSubject::key(tenant_id, id));
                }
                let key = self.store.key(process(), known_id(KEY, id)?).await?;
                let reached = named.filter(|_| tenant.is_some() || scope.operator().is_none());
                let key = key.filter(|key| reached.is_none_or(|tenant_id| key.tenant_id == tenant_id));
                let key = key.ok_or_else(|| not_found(KEY, id))?;
                Ok(LimitSubject::key(key.tenant_id, key.id))
            }
            LimitKind::User => {
                let tenant_id = target_tenant(scope, tenant)?.unwrap_or(scope.tenant_id());
                self.existing_tenant(scope, tenant_id).await?;
                is_name(id).then(|| LimitSubject::user(tenant_id, id)).ok_or_else(|| not_found("User", id))
            }
        }
    }

    /// Checks a tenant that is not the caller's own.
    async fn existing_tenant(&self, scope: &Scope, tenant_id: i64) -> Result<(), Fault> {
        if tenant_id == scope.tenant_id() {
            return Ok(());
        }
        self.store.tenant(process(), tenant_id).await?.map(drop).ok_or_else(|| no_tenant(tenant_id))
    }
}

/// A limit without what is used of it, for the audit.
fn rules_view(view: LimitView) -> serde_json::Value {
    let mut value = serde_json::to_value(view).unwrap_or_default();
    if let Some(fields) = value.as_object_mut() {
        fields.remove("usage");
    }
    value
}

/// The name of a limit in the audit.
fn name(subject: &LimitSubject) -> String {
    format!("{}/{}", subject.kind.name(), subject.id)
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.chars().count() <= LONGEST_NAME && !text.chars().any(char::is_control)
}

/// The store is called as the process: the service has checked what the caller reaches.
fn process() -> Operator {
    Operator::of_this_process()
}
