//! The threads between a tenant's users and its assistants.

use amalgam_app::not_found;
use amalgam_core::{
    AuditAction, Fault, FaultKind, Scope,
    store::{MessageRecord, Page, SessionDeletion, SessionRecord},
};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::json;

use super::{
    Administration,
    access::{admin, number_id, user_scope, within},
    audit::snapshot,
    fields::{Object, UnixSeconds},
    list::{List, number_after},
};

/// The thread in not-found errors.
const SESSION: &str = "Session";

const CLOSE: AuditAction = AuditAction::new("session.close");
const DELETE: AuditAction = AuditAction::new("session.delete");

/// A thread between one user and one profile.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "SessionHead")]
pub struct SessionView {
    /// The number of the thread.
    #[schemars(range(min = 1))]
    pub id: i64,
    #[schemars(extend("const" = "session"))]
    object: &'static str,
    /// The owner.
    pub user: String,
    /// The profile; null if none was found.
    pub profile: Option<String>,
    /// Whether the thread takes messages.
    #[schemars(extend("enum" = ["active", "closed"]))]
    pub status: &'static str,
    /// The number of messages.
    pub message_count: u64,
    created_at: UnixSeconds,
    /// When the last message was added.
    pub updated_at: UnixSeconds,
}

/// A thread between one user and one profile.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Session")]
pub struct SessionMessages {
    #[serde(flatten)]
    session: SessionView,
    messages: Vec<SessionMessage>,
    first_id: Option<i64>,
    last_id: Option<i64>,
    /// Whether there are older messages.
    has_more: bool,
}

/// A message of a thread.
#[derive(Serialize, JsonSchema)]
struct SessionMessage {
    #[schemars(range(min = 1))]
    id: i64,
    #[schemars(extend("const" = "session.message"))]
    object: &'static str,
    #[schemars(extend("enum" = ["user", "assistant", "system"]))]
    role: String,
    /// The content.
    content: String,
    /// The response of the turn.
    response_id: Option<String>,
    created_at: UnixSeconds,
    metadata: Vec<MessageFact>,
}

/// A record about the message.
#[derive(Serialize, JsonSchema)]
#[schemars(inline)]
struct MessageFact {
    #[schemars(extend("enum" = ["system_prompt", "context", "model_usage", "tool_call", "error"]))]
    kind: String,
    value: Object,
}

impl Administration<'_> {
    /// Threads, newest first; with `user` those of one user.
    pub async fn sessions(
        &self,
        scope: &Scope,
        user: Option<&str>,
        page: &Page,
    ) -> Result<List<SessionView, i64>, Fault> {
        let after = number_after(page, "it is a number")?;
        let sessions = self.store.sessions_within(within(scope)?, user, after, page.limit + 1).await?;
        Ok(List::new(sessions.into_iter().map(SessionView::from).collect(), page.limit, |session| session.id))
    }

    /// One thread with a page of its messages, newest first, and their records.
    pub async fn session(&self, scope: &Scope, id: &str, page: &Page) -> Result<SessionMessages, Fault> {
        let (id, after) = (number_id(SESSION, id)?, number_after(page, "it is a number")?);
        let found = self.store.session_within(within(scope)?, id, after, page.limit + 1).await?;
        let (session, messages) = found.ok_or_else(|| not_found(SESSION, &id.to_string()))?;
        let messages = messages.into_iter().map(SessionMessage::from).collect();
        let List { data, first_id, last_id, has_more, .. } = List::new(messages, page.limit, |message| message.id);
        Ok(SessionMessages { session: session.into(), messages: data, first_id, last_id, has_more })
    }
}

impl Administration<'_> {
    /// Closes a thread: the user's next message to the profile begins another one. Closing it again changes nothing.
    pub async fn close_session(&self, scope: &Scope, id: &str) -> Result<SessionView, Fault> {
        let (number, within) = (number_id(SESSION, id)?, within(scope)?);
        let audit = self.change(scope.tenant_id(), CLOSE, id).after(snapshot(&json!({"status": "closed"})));
        let closed = self.store.close_session(within, number, self.now_ms, audit).await?;
        closed.ok_or_else(|| not_found(SESSION, id))?;
        let found = self.store.session_within(within, number, None, 0).await?;
        found.map(|(session, _)| session.into()).ok_or_else(|| not_found(SESSION, id))
    }

    /// Deletes a thread with its messages, what is known about them, and the responses of its turns.
    pub async fn delete_session(&self, scope: &Scope, id: &str) -> Result<(), Fault> {
        let (number, within) = (number_id(SESSION, id)?, within(scope)?);
        let found = self.store.session_within(within, number, None, 0).await?;
        let (session, _) = found.ok_or_else(|| not_found(SESSION, id))?;
        // The audit has what the thread was, not what was said in it.
        let audit = self.change(scope.tenant_id(), DELETE, id).before(snapshot(&SessionView::from(session)));
        let (user, responses) = match self.store.delete_session_within(within, number, audit).await? {
            SessionDeletion::Deleted { user, responses } => (user, responses),
            SessionDeletion::Missing => return Err(not_found(SESSION, id)),
            SessionDeletion::Busy => {
                let message = "A turn of the session runs or waits. Try again when it has ended.";
                return Err(Fault::new(FaultKind::Conflict, message).code("session_busy"));
            }
        };
        let user = user_scope(admin(scope)?, scope, &user);
        for response in &responses {
            self.store.delete_response(&user, response).await?;
        }
        Ok(())
    }
}

impl From<SessionRecord> for SessionView {
    fn from(session: SessionRecord) -> Self {
        Self {
            id: session.id,
            object: "session",
            user: session.user,
            profile: session.profile,
            status: if session.active { "active" } else { "closed" },
            message_count: session.messages,
            created_at: UnixSeconds::from_ms(session.created_at_ms),
            updated_at: UnixSeconds::from_ms(session.updated_at_ms),
        }
    }
}

impl From<MessageRecord> for SessionMessage {
    fn from(message: MessageRecord) -> Self {
        let facts = message.metadata.into_iter();
        Self {
            id: message.id,
            object: "session.message",
            role: message.role,
            content: message.content,
            // `/admin/turns` has the model calls of the turn under this id.
            response_id: message.response_id,
            created_at: UnixSeconds::from_ms(message.created_at_ms),
            metadata: facts.map(|record| MessageFact { kind: record.kind, value: record.value.into() }).collect(),
        }
    }
}
