//! Sessions and conversations of all users of a tenant.

use amalgam_core::{
    AuditDraft, StoreError,
    store::{AgentSession, Conversation, OwnedBy, SessionDeletion, Stored, ThreadStore, Within},
};

use crate::{
    SqlStore, audit,
    engine::{Repeat, SqlConnection, SqlEngine, TenantKey},
    sql::shared_statements,
    values::{SqlRow, values},
};

/// Behind every id: ids are ASCII.
const LAST_ID: &str = "\u{7f}";

shared_statements! {
    /// Locks the session against messages; an engine whose writing transactions are alone has nothing to lock.
    TenantSql CLOSE_SESSION = "
        UPDATE sessions SET active = $3 WHERE tenant_id = $1 AND id = $2 RETURNING user_id";
    TenantSql IS_SESSION_OPEN = "SELECT active FROM sessions WHERE tenant_id = $1 AND id = $2";
    TenantSql TOUCH_CLOSED = "UPDATE sessions SET updated_at = $3 WHERE tenant_id = $1 AND id = $2";
    TenantSql QUEUE_OF_SESSION = "SELECT 1 FROM session_queue WHERE session_id = $2 AND tenant_id = $1 LIMIT 1";
    TenantSql RESPONSES_OF_THREAD = "
        SELECT response_id FROM messages
        WHERE session_id = $2 AND tenant_id = $1 AND response_id IS NOT NULL";
    TenantSql DELETE_FACTS = "
        DELETE FROM message_metadata WHERE tenant_id = $1 AND message_id IN (
            SELECT id FROM messages WHERE session_id = $2 AND tenant_id = $1)";
    TenantSql DELETE_MESSAGES = "DELETE FROM messages WHERE session_id = $2 AND tenant_id = $1";
    TenantSql DELETE_THREAD = "DELETE FROM sessions WHERE tenant_id = $1 AND id = $2";
    TenantSql AGENT_SESSIONS = "
        SELECT user_id, id, profile, mode, solution_context, turns, created_at, updated_at FROM agent_sessions
        WHERE tenant_id = $1 AND id < $2 ORDER BY id DESC LIMIT $3";
    TenantSql AGENT_SESSIONS_OF_USER = "
        SELECT user_id, id, profile, mode, solution_context, turns, created_at, updated_at FROM agent_sessions
        WHERE tenant_id = $1 AND user_id = $4 AND id < $2 ORDER BY id DESC LIMIT $3";
    TenantSql AGENT_SESSION = "
        SELECT user_id, id, profile, mode, solution_context, turns, created_at, updated_at FROM agent_sessions
        WHERE tenant_id = $1 AND id = $2 LIMIT 1";
    TenantSql CONVERSATIONS = "
        SELECT user_id, id, created_at, metadata FROM conversations
        WHERE tenant_id = $1 AND id < $2 ORDER BY id DESC LIMIT $3";
    TenantSql CONVERSATIONS_OF_USER = "
        SELECT user_id, id, created_at, metadata FROM conversations
        WHERE tenant_id = $1 AND user_id = $4 AND id < $2 ORDER BY id DESC LIMIT $3";
    TenantSql CONVERSATION = "
        SELECT user_id, id, created_at, metadata FROM conversations WHERE tenant_id = $1 AND id = $2";
}

impl<E: SqlEngine> ThreadStore for SqlStore<E> {
    fn close_session<'a>(
        &'a self,
        within: Within<'a>,
        session_id: i64,
        now_ms: u64,
        audit: AuditDraft,
    ) -> Stored<'a, Option<bool>> {
        let arguments = (TenantKey::within(within), session_id, now_ms, audit);
        self.engine.transaction(Repeat::Never, arguments, |connection, (tenant, id, now_ms, audit)| {
            Box::pin(async move {
                let (tenant, id) = (*tenant, *id);
                let Some(open) = is_open(connection, tenant, id).await? else { return Ok(None) };
                if open {
                    connection.tenant(tenant, CLOSE_SESSION, values![id, false]).first(|_| Ok(())).await?;
                    connection.tenant(tenant, TOUCH_CLOSED, values![id, *now_ms]).run().await?;
                    audit::append(connection, audit).await?;
                }
                Ok(Some(open))
            })
        })
    }

    fn delete_session_within<'a>(
        &'a self,
        within: Within<'a>,
        session_id: i64,
        audit: AuditDraft,
    ) -> Stored<'a, SessionDeletion> {
        let arguments = (TenantKey::within(within), session_id, audit);
        self.engine.transaction(Repeat::Never, arguments, |connection, (tenant, id, audit)| {
            Box::pin(async move {
                let (tenant, id) = (*tenant, *id);
                let Some(open) = is_open(connection, tenant, id).await? else { return Ok(SessionDeletion::Missing) };
                // The session first: a message locks it, and its entry in the queue exists once the lock is ours.
                let user = connection.tenant(tenant, CLOSE_SESSION, values![id, false]);
                let Some(user) = user.first(|row| row.get(0)).await? else { return Ok(SessionDeletion::Missing) };
                if connection.tenant(tenant, QUEUE_OF_SESSION, values![id]).exists().await? {
                    connection.tenant(tenant, CLOSE_SESSION, values![id, open]).first(|_| Ok(())).await?;
                    return Ok(SessionDeletion::Busy);
                }
                let responses = connection.tenant(tenant, RESPONSES_OF_THREAD, values![id]);
                let mut responses: Vec<String> = responses.all(|row| row.get(0)).await?;
                responses.sort_unstable();
                responses.dedup();
                for statement in [DELETE_FACTS, DELETE_MESSAGES, DELETE_THREAD] {
                    connection.tenant(tenant, statement, values![id]).run().await?;
                }
                audit::append(connection, audit).await?;
                Ok(SessionDeletion::Deleted { user, responses })
            })
        })
    }

    fn agent_sessions_within<'a>(
        &'a self,
        within: Within<'a>,
        user: Option<&'a str>,
        after: Option<&'a str>,
        limit: usize,
    ) -> Stored<'a, Vec<OwnedBy<AgentSession>>> {
        let arguments = listing(within, user, after, limit);
        self.engine.read(arguments, |connection, (tenant, user, before, limit)| {
            let query = match user {
                None => connection.tenant(*tenant, AGENT_SESSIONS, values![before, *limit]),
                Some(user) => connection.tenant(*tenant, AGENT_SESSIONS_OF_USER, values![before, *limit, user]),
            };
            Box::pin(query.all(agent_session))
        })
    }

    fn agent_session_within<'a>(
        &'a self,
        within: Within<'a>,
        id: &'a str,
    ) -> Stored<'a, Option<OwnedBy<AgentSession>>> {
        self.engine.read((TenantKey::within(within), id.to_owned()), |connection, (tenant, id)| {
            Box::pin(connection.tenant(*tenant, AGENT_SESSION, values![id]).first(agent_session))
        })
    }

    fn conversations_within<'a>(
        &'a self,
        within: Within<'a>,
        user: Option<&'a str>,
        after: Option<&'a str>,
        limit: usize,
    ) -> Stored<'a, Vec<OwnedBy<Conversation>>> {
        let arguments = listing(within, user, after, limit);
        self.engine.read(arguments, |connection, (tenant, user, before, limit)| {
            let query = match user {
                None => connection.tenant(*tenant, CONVERSATIONS, values![before, *limit]),
                Some(user) => connection.tenant(*tenant, CONVERSATIONS_OF_USER, values![before, *limit, user]),
            };
            Box::pin(query.all(conversation))
        })
    }

    fn conversation_within<'a>(&'a self, within: Within<'a>, id: &'a str) -> Stored<'a, Option<OwnedBy<Conversation>>> {
        self.engine.read((TenantKey::within(within), id.to_owned()), |connection, (tenant, id)| {
            Box::pin(connection.tenant(*tenant, CONVERSATION, values![id]).first(conversation))
        })
    }
}

/// Tenant, user, the id that the page ends before, and the size of the page.
fn listing(
    within: Within<'_>,
    user: Option<&str>,
    after: Option<&str>,
    limit: usize,
) -> (TenantKey, Option<String>, String, usize) {
    (TenantKey::within(within), user.map(str::to_owned), after.unwrap_or(LAST_ID).to_owned(), limit)
}

async fn is_open<C: SqlConnection>(connection: &C, tenant: TenantKey, id: i64) -> Result<Option<bool>, C::Failure> {
    connection.tenant(tenant, IS_SESSION_OPEN, values![id]).first(|row| row.get(0)).await
}

fn agent_session(row: &dyn SqlRow) -> Result<OwnedBy<AgentSession>, StoreError> {
    let object = AgentSession {
        id: row.get(1)?,
        profile: row.optional(2)?,
        mode: row.get(3)?,
        solution_context: row.optional(4)?,
        turns: row.get(5)?,
        created_at_ms: row.get(6)?,
        updated_at_ms: row.get(7)?,
    };
    Ok(OwnedBy { user: row.get(0)?, object })
}

fn conversation(row: &dyn SqlRow) -> Result<OwnedBy<Conversation>, StoreError> {
    let object = Conversation { id: row.get(1)?, created_at_ms: row.get(2)?, metadata: row.get(3)? };
    Ok(OwnedBy { user: row.get(0)?, object })
}
