//! Rows of the audit: who changed what, chained by hash.
//!
//! There is one chain for each installation. A row's hash covers its content and the hash of the row before it, so that a
//! changed, removed or reordered row breaks the chain. The store numbers and chains rows in the transaction of the change.

use std::fmt;

use sha2::{Digest as _, Sha256};

use crate::{
    ids::{IdKind, Ids},
    scope::Scope,
};

/// A digest of a row, which the next row contains.
pub type AuditHash = [u8; 32];

/// The hash that the first row contains as that of its predecessor.
pub const CHAIN_START: AuditHash = [0; 32];

/// The tenant of changes that belong to no tenant but to the installation.
pub const INSTALLATION: i64 = 0;

/// The actor of a change, and where the change was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Actor {
    /// `key` for a caller of the API, `command`, or `server` for changes that a server makes itself, such as at its start.
    pub kind: String,
    /// The id of the key; none for a key of the configuration, a command or a server.
    pub key_id: Option<String>,
    /// The user that the key acts for.
    pub user: Option<String>,
    /// The client's address, or the host of the command or the server.
    pub origin: Option<String>,
}

impl Actor {
    /// The caller of a request, from this address.
    pub fn of_caller(scope: &Scope, address: Option<String>) -> Self {
        let key_id = scope.key_id().map(|id| id.to_string());
        Self { kind: "key".to_owned(), key_id, user: Some(scope.user().to_owned()), origin: address }
    }

    /// A user without a key, from this address.
    pub fn of_user(user: &str, address: Option<String>) -> Self {
        Self { kind: "key".to_owned(), key_id: None, user: Some(user.to_owned()), origin: address }
    }

    /// A command on this host.
    pub fn command(host: Option<String>) -> Self {
        Self { kind: "command".to_owned(), key_id: None, user: None, origin: host }
    }

    /// A server on this host.
    pub fn server(host: Option<String>) -> Self {
        Self { kind: "server".to_owned(), key_id: None, user: None, origin: host }
    }

    /// A change of an object of a tenant, or of the [`INSTALLATION`].
    pub fn change(&self, at_ms: u64, tenant_id: i64, action: AuditAction, object_id: impl Into<String>) -> AuditDraft {
        AuditDraft {
            id: Ids::Unguessable.make(IdKind::Audit),
            at_ms,
            tenant_id,
            actor: self.clone(),
            action: action.name().into(),
            object: action.object().into(),
            object_id: object_id.into(),
            before: None,
            after: None,
        }
    }
}

/// A kind of change, such as `mode.put`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AuditAction(&'static str);

impl AuditAction {
    /// An action: the kind of object, a dot, and a verb.
    pub const fn new(name: &'static str) -> Self {
        Self(name)
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        self.0
    }

    /// The kind of object.
    pub fn object(self) -> &'static str {
        self.0.rsplit_once('.').map_or(self.0, |(object, _)| object)
    }
}

/// The content of a row, before the store has numbered and chained it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditDraft {
    /// `audit_…`; a write that is repeated adds one row.
    pub id: String,
    /// Milliseconds since 1970.
    pub at_ms: u64,
    /// The tenant that the object belongs to.
    pub tenant_id: i64,
    /// The actor.
    pub actor: Actor,
    /// The kind of change, such as `mode.put`.
    pub action: String,
    /// The kind of object, such as `mode`.
    pub object: String,
    /// The name or id of the object; empty until the store has assigned it.
    pub object_id: String,
    /// The object before the change as JSON, without secrets.
    pub before: Option<String>,
    /// The object after the change as JSON, without secrets.
    pub after: Option<String>,
}

impl AuditDraft {
    /// The same with the object before the change.
    #[must_use]
    pub fn before(self, object: Option<String>) -> Self {
        Self { before: object, ..self }
    }

    /// The same with the object after the change.
    #[must_use]
    pub fn after(self, object: Option<String>) -> Self {
        Self { after: object, ..self }
    }

    /// The hash of the row with this number after a row with this hash: SHA-256 over `previous` and the fields in their
    /// order, each as its length in bytes, a colon, its text and a comma; a field without a value is a dash and a
    /// comma.
    pub fn hash(&self, number: u64, previous: &AuditHash) -> AuditHash {
        let mut digest = Sha256::new();
        digest.update(previous);
        let fields = [
            Some(number.to_string()),
            Some(self.id.clone()),
            Some(self.at_ms.to_string()),
            Some(self.tenant_id.to_string()),
            Some(self.actor.kind.clone()),
            self.actor.key_id.clone(),
            self.actor.user.clone(),
            self.actor.origin.clone(),
            Some(self.action.clone()),
            Some(self.object.clone()),
            Some(self.object_id.clone()),
            self.before.clone(),
            self.after.clone(),
        ];
        for field in fields {
            match field {
                Some(text) => digest.update(format!("{}:{text},", text.len())),
                None => digest.update("-,"),
            }
        }
        digest.finalize().into()
    }
}

/// A row of the audit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditRow {
    /// Its place in the chain, from 1.
    pub number: u64,
    /// Its content.
    pub content: AuditDraft,
    /// The hash of the row before it.
    pub previous: AuditHash,
    /// Its own hash.
    pub hash: AuditHash,
}

/// The end of the chain, which the store holds beside the rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AuditHead {
    /// The number of rows.
    pub number: u64,
    /// The hash of the last one.
    pub hash: AuditHash,
}

/// An error in a chain, at a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditBreak {
    /// The number of the row.
    pub number: u64,
    /// The id of the row; none for a missing one.
    pub id: Option<String>,
    /// The error.
    pub problem: AuditProblem,
}

/// An error of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuditProblem {
    /// Its content does not have its hash: the row was changed, or its number was.
    Changed,
    /// The row does not contain the hash of the row before it: one of them was replaced.
    Unlinked,
    /// There is no such row.
    Missing,
    /// The row comes after the last row that the store has recorded.
    Unknown,
}

impl AuditProblem {
    /// The name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Changed => "changed",
            Self::Unlinked => "unlinked",
            Self::Missing => "missing",
            Self::Unknown => "unknown",
        }
    }
}

impl fmt::Display for AuditBreak {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = self.number;
        let id = self.id.as_deref().map(|id| format!(" ({id})")).unwrap_or_default();
        match self.problem {
            AuditProblem::Changed => {
                write!(formatter, "row {number}{id} was changed: its content does not have its hash")
            }
            AuditProblem::Unlinked => {
                write!(formatter, "row {number}{id} does not follow the row before it: a row was replaced or reordered")
            }
            AuditProblem::Missing => write!(formatter, "row {number} is missing"),
            AuditProblem::Unknown => write!(formatter, "row {number}{id} comes after the last known row"),
        }
    }
}

/// Checks a chain, row by row in the order of their numbers.
#[derive(Debug)]
pub struct AuditCheck {
    last: AuditHead,
    breaks: Vec<AuditBreak>,
    /// The number of rows.
    rows: u64,
}

/// Missing rows are named one by one up to this many.
const NAMED_GAPS: u64 = 1000;

impl Default for AuditCheck {
    fn default() -> Self {
        Self { last: AuditHead { number: 0, hash: CHAIN_START }, breaks: Vec::new(), rows: 0 }
    }
}

impl AuditCheck {
    /// Checks the next row.
    pub fn row(&mut self, row: &AuditRow) {
        let mut add = |number, id: Option<&str>, problem| {
            self.breaks.push(AuditBreak { number, id: id.map(str::to_owned), problem });
        };
        let (expected, id) = (self.last.number + 1, row.content.id.as_str());
        for missing in (expected..row.number).take(NAMED_GAPS as usize) {
            add(missing, None, AuditProblem::Missing);
        }
        if row.number == expected && row.previous != self.last.hash {
            add(row.number, Some(id), AuditProblem::Unlinked);
        }
        if row.content.hash(row.number, &row.previous) != row.hash {
            add(row.number, Some(id), AuditProblem::Changed);
        }
        self.rows += 1;
        self.last = AuditHead { number: row.number, hash: row.hash };
    }

    /// Returns the number of rows and what is wrong with them. `head` is the store's record of the last row.
    pub fn finish(mut self, head: Option<AuditHead>) -> (u64, AuditHead, Vec<AuditBreak>) {
        let head = head.unwrap_or(AuditHead { number: 0, hash: CHAIN_START });
        for missing in (self.last.number + 1..=head.number).take(NAMED_GAPS as usize) {
            self.breaks.push(AuditBreak { number: missing, id: None, problem: AuditProblem::Missing });
        }
        for unknown in (head.number + 1..=self.last.number).take(NAMED_GAPS as usize) {
            self.breaks.push(AuditBreak { number: unknown, id: None, problem: AuditProblem::Unknown });
        }
        if head.number == self.last.number && head.hash != self.last.hash {
            self.breaks.push(AuditBreak { number: head.number, id: None, problem: AuditProblem::Unlinked });
        }
        (self.rows, self.last, self.breaks)
    }
}

#[cfg(test)]
#[path = "audit_tests.rs"]
mod tests;
