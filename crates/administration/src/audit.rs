//! The audit: the changes of the administration with their actors, and whether the chain of rows is intact.

use amalgam_app::no_such_cursor;
use amalgam_core::{
    Actor, AuditAction, AuditBreak, AuditCheck, AuditDraft, AuditHash, AuditRow, Fault, Operator, Scope, hex,
    store::{AuditFilter, Page},
};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;

use super::{
    Administration,
    access::{admin, target_tenant},
    fields::{UnixSeconds, Verbatim},
    list::List,
    request::wrong,
};

/// The number of rows that the verification reads at once.
const BATCH: usize = 500;

/// A change of the administration.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "AuditEntry")]
#[expect(missing_docs, reason = "a doc comment would be a description in the OpenAPI document")]
pub struct AuditEntryView {
    pub id: String,
    #[schemars(extend("const" = "audit.entry"))]
    object: &'static str,
    /// The place in the chain, for operators; null for administrators of a tenant, who see only their tenant's entries.
    pub number: Option<u64>,
    pub created_at: UnixSeconds,
    /// The tenant that the object belongs to; 0 for the installation.
    pub tenant_id: i64,
    pub actor: ActorView,
    /// What was done, such as `mode.put`.
    pub action: String,
    pub target: AuditTarget,
    /// The object before the change, without secrets; null for a new one.
    before: Option<Verbatim>,
    /// The object after the change, without secrets; null for a deleted one.
    after: Option<Verbatim>,
    /// The hash of the entry, in hexadecimal. It covers the content and the hash of the entry before it.
    hash: String,
}

// Who made a change.
#[derive(Serialize, JsonSchema)]
#[schemars(inline)]
#[expect(missing_docs, reason = "a doc comment would be a description in the OpenAPI document")]
pub struct ActorView {
    /// A caller with a key, a command, or the server itself.
    #[serde(rename = "type")]
    #[schemars(extend("enum" = ["key", "command", "server"]))]
    pub kind: String,
    /// The id of the key; null for a key of the configuration.
    pub key_id: Option<String>,
    /// The user that the key acts for.
    pub user: Option<String>,
    /// The client's address, or the host of the command or the server.
    pub origin: Option<String>,
}

// The object of a change.
#[derive(Serialize, JsonSchema)]
#[schemars(inline)]
#[expect(missing_docs, reason = "a doc comment would be a description in the OpenAPI document")]
pub struct AuditTarget {
    /// The kind of object, such as `mode`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Its id or name.
    pub id: String,
}

/// Conditions on the entries of a list, as text.
#[derive(Debug, Clone, Copy, Default)]
pub struct AuditQuery<'a> {
    /// A key's id, a user, or `key`, `command` or `server`.
    pub actor: Option<&'a str>,
    /// A kind of object, or a kind, a slash and an id.
    pub object: Option<&'a str>,
    /// The earliest time, in RFC 3339.
    pub from: Option<&'a str>,
    /// The first time that is too late, in RFC 3339.
    pub to: Option<&'a str>,
}

/// Whether the chain is intact.
#[derive(Debug, Serialize)]
pub struct AuditVerification {
    object: &'static str,
    /// Whether nothing is wrong.
    pub valid: bool,
    /// The number of rows.
    pub rows: u64,
    /// The number of the last row.
    pub last_number: u64,
    /// The hash of the last row, in hexadecimal. Kept elsewhere, it proves later that the rows up to it are the same.
    pub last_hash: String,
    /// What is wrong.
    pub breaks: Vec<AuditBreakView>,
}

/// What is wrong with a row.
#[derive(Debug, Serialize)]
pub struct AuditBreakView {
    /// The number of the row.
    pub number: u64,
    /// Its id, unless it is missing.
    pub id: Option<String>,
    /// `changed`, `unlinked`, `missing` or `unknown`.
    pub problem: &'static str,
    /// A sentence about it.
    pub message: String,
}

impl Administration<'_> {
    /// Entries, newest first: of the named tenant, or of the caller's own if none is named; of all tenants for an
    /// operator who names none.
    pub async fn audit(
        &self,
        scope: &Scope,
        named: Option<i64>,
        query: AuditQuery<'_>,
        page: &Page,
    ) -> Result<List<AuditEntryView, String>, Fault> {
        let tenant_id = match (named, scope.operator()) {
            (None, Some(_)) => None,
            (None, None) => Some(admin(scope)?.tenant_id()),
            (named, _) => target_tenant(scope, named)?,
        };
        let text = |text: &str| Some(text.to_owned());
        let (object, object_id) = match query.object.map(|object| object.split_once('/').unwrap_or((object, ""))) {
            None => (None, None),
            Some((object, "")) => (text(object), None),
            Some((object, id)) => (text(object), text(id)),
        };
        let filter = AuditFilter {
            tenant_id,
            actor: query.actor.map(str::to_owned),
            object,
            object_id,
            from_ms: query.from.map(|from| time("from", from)).transpose()?,
            to_ms: query.to.map(|to| time("to", to)).transpose()?,
            after: page.after.clone(),
        };
        let rows = self.store.audit(process(), filter, page.limit + 1).await?;
        let rows = rows.ok_or_else(|| no_such_cursor("after", page.after.as_deref().unwrap_or_default()))?;
        let shows_number = scope.operator().is_some();
        let views = rows.into_iter().map(|row| AuditEntryView::of(row, shows_number)).collect();
        Ok(List::new(views, page.limit, |entry| entry.id.clone()))
    }

    /// Reads the whole chain. With `expected`, the row of this number must have this hash, in hexadecimal.
    pub async fn verify_audit(
        &self,
        operator: Operator,
        expected: Option<(u64, &str)>,
    ) -> Result<AuditVerification, Fault> {
        let (mut check, mut last, mut head) = (AuditCheck::default(), 0, None);
        let mut breaks = Vec::new();
        loop {
            let rows = self.store.audit_chain(operator, last, BATCH).await?;
            if rows.is_empty() {
                // Rows may have been appended since they were read; those that are still not there are missing.
                let seen = std::mem::replace(&mut head, self.store.audit_head(operator).await?);
                if head == seen || head.is_none_or(|head| head.number <= last) {
                    break;
                }
            }
            for row in &rows {
                check.row(row);
                last = row.number;
                let differs = |(number, hash): (u64, &str)| number == row.number && !is_hex_of(hash, &row.hash);
                if expected.is_some_and(differs) {
                    breaks.push(AuditBreakView::replaced(row));
                }
            }
        }
        let (rows, last, found) = check.finish(head);
        if let Some((number, _)) = expected.filter(|(number, _)| *number > last.number) {
            breaks.push(AuditBreakView::missing(number));
        }
        breaks.extend(found.into_iter().map(AuditBreakView::from));
        Ok(AuditVerification {
            object: "audit.verification",
            valid: breaks.is_empty(),
            rows,
            last_number: last.number,
            last_hash: hex(&last.hash),
            breaks,
        })
    }

    /// A change by this service's actor.
    pub(super) fn change(&self, tenant_id: i64, action: AuditAction, object_id: impl Into<String>) -> AuditDraft {
        self.actor.change(self.now_ms, tenant_id, action, object_id)
    }

    /// Appends an entry for work that takes several transactions. It comes before the work, so that all parts of it
    /// have an entry.
    pub async fn announce(
        &self,
        tenant_id: i64,
        action: AuditAction,
        object_id: &str,
        details: &impl Serialize,
    ) -> Result<(), Fault> {
        let draft = self.change(tenant_id, action, object_id).after(snapshot(details));
        Ok(self.store.append_audit(process(), draft).await?)
    }
}

/// An object as the audit stores it.
pub(super) fn snapshot(object: &impl Serialize) -> Option<String> {
    serde_json::to_string(object).ok()
}

/// The store is called as the process: the service has checked which tenant's entries the caller may see.
fn process() -> Operator {
    Operator::of_this_process()
}

fn is_hex_of(text: &str, hash: &AuditHash) -> bool {
    hex(hash).eq_ignore_ascii_case(text)
}

/// Milliseconds since 1970 of a time in RFC 3339.
fn time(name: &'static str, text: &str) -> Result<u64, Fault> {
    let read = text.parse::<Timestamp>().ok().and_then(|time| u64::try_from(time.as_millisecond()).ok());
    read.ok_or_else(|| wrong(name, "must be a time in RFC 3339, such as `2026-01-31T12:00:00Z`"))
}

impl AuditEntryView {
    fn of(row: AuditRow, shows_number: bool) -> Self {
        let AuditRow { number, content, hash, .. } = row;
        let Actor { kind, key_id, user, origin } = content.actor;
        Self {
            id: content.id,
            object: "audit.entry",
            number: shows_number.then_some(number),
            created_at: UnixSeconds::from_ms(content.at_ms),
            tenant_id: content.tenant_id,
            actor: ActorView { kind, key_id, user, origin },
            action: content.action,
            target: AuditTarget { kind: content.object, id: content.object_id },
            before: content.before.and_then(Verbatim::of_text),
            after: content.after.and_then(Verbatim::of_text),
            hash: hex(&hash),
        }
    }
}

impl AuditBreakView {
    fn replaced(row: &AuditRow) -> Self {
        let message = format!("row {} ({}) does not have the expected hash", row.number, row.content.id);
        Self { number: row.number, id: Some(row.content.id.clone()), problem: "changed", message }
    }

    fn missing(number: u64) -> Self {
        Self { number, id: None, problem: "missing", message: format!("row {number} is missing") }
    }
}

impl From<AuditBreak> for AuditBreakView {
    fn from(found: AuditBreak) -> Self {
        let message = found.to_string();
        Self { number: found.number, id: found.id, problem: found.problem.name(), message }
    }
}
