//! Sessions of both kinds and conversations, of a tenant as a whole: for its administrators.

use super::{AgentSession, Conversation, Stored, Within};
use crate::audit::AuditDraft;

/// Something that belongs to one user of a tenant.
#[derive(Debug, Clone, PartialEq)]
pub struct OwnedBy<T> {
    /// The user.
    pub user: String,
    /// What belongs to it.
    pub object: T,
}

/// What came of deleting a session of an assistant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SessionDeletion {
    /// It is gone, with its messages. Its responses are still there.
    Deleted {
        /// Whose it was.
        user: String,
        /// The responses of its turns.
        responses: Vec<String>,
    },
    /// A turn of it runs or waits: nothing was changed.
    Busy,
    /// There is no such session.
    Missing,
}

/// Sessions and conversations of all users of a tenant.
pub trait ThreadStore: Send + Sync {
    /// Closes a session of an assistant: the user's next message begins another one. Whether it was open; nothing when there
    /// is no such session.
    fn close_session<'a>(
        &'a self,
        within: Within<'a>,
        session_id: i64,
        now_ms: u64,
        audit: AuditDraft,
    ) -> Stored<'a, Option<bool>>;

    /// Deletes a session of an assistant with its messages.
    fn delete_session_within<'a>(
        &'a self,
        within: Within<'a>,
        session_id: i64,
        audit: AuditDraft,
    ) -> Stored<'a, SessionDeletion>;

    /// The sessions of the strict contract, of one user or of all, the newest first, behind `after`.
    fn agent_sessions_within<'a>(
        &'a self,
        within: Within<'a>,
        user: Option<&'a str>,
        after: Option<&'a str>,
        limit: usize,
    ) -> Stored<'a, Vec<OwnedBy<AgentSession>>>;

    /// One session of the strict contract.
    fn agent_session_within<'a>(&'a self, within: Within<'a>, id: &'a str)
    -> Stored<'a, Option<OwnedBy<AgentSession>>>;

    /// The conversations, of one user or of all, by id downwards, behind `after`.
    fn conversations_within<'a>(
        &'a self,
        within: Within<'a>,
        user: Option<&'a str>,
        after: Option<&'a str>,
        limit: usize,
    ) -> Stored<'a, Vec<OwnedBy<Conversation>>>;

    /// One conversation.
    fn conversation_within<'a>(&'a self, within: Within<'a>, id: &'a str) -> Stored<'a, Option<OwnedBy<Conversation>>>;
}
