//! Sessions of assistants: their queue and their messages.

use std::collections::HashMap;

use amalgam_core::{
    Scope, StoreError,
    store::{
        MessageRecord, MetadataRecord, NewUserMessage, ProcessId, QueueEntry, SessionHistory, SessionRecord,
        SessionStore, Stored, Ticket, Within,
    },
};

use crate::{
    SqlStore,
    engine::{Repeat, SqlConnection, SqlEngine, TenantKey},
    execute,
    pending_release::{PendingRelease, Reservation},
    session_queue::{self, NewEntry, QueuePosition},
    sql::shared_statements,
    values::{SqlRow, values},
};

shared_statements! {
    UserSql SESSIONS = "
        SELECT id, user_id, profile, active, messages, created_at, updated_at FROM sessions
        WHERE tenant_id = $1 AND user_id = $2 AND id < $3 ORDER BY id DESC LIMIT $4";
    UserSql SESSION = "SELECT 1 FROM sessions WHERE tenant_id = $1 AND user_id = $2 AND id = $3";
    UserSql MESSAGES = "
        SELECT id, session_id, role, content, response_id, created_at FROM messages
        WHERE tenant_id = $1 AND user_id = $2 AND session_id = $3 AND id < $4 ORDER BY id DESC LIMIT $5";
    UserSql MESSAGE = "
        SELECT id, session_id, role, content, response_id, created_at FROM messages
        WHERE tenant_id = $1 AND user_id = $2 AND id = $3";
    /// One statement, so that processes count exactly. The clock of another process may be in the next day already: its day
    /// stays.
    UserSql COUNT_CLIENT_MESSAGE = "
        INSERT INTO client_messages AS known (tenant_id, user_id, day, messages) VALUES ($1, $2, $3, 1)
        ON CONFLICT (tenant_id, user_id) DO UPDATE SET
            messages = CASE WHEN known.day < excluded.day THEN 1 ELSE known.messages + 1 END,
            day = CASE WHEN known.day < excluded.day THEN excluded.day ELSE known.day END
        WHERE known.tenant_id = $1 AND known.user_id = $2 AND (known.day < excluded.day OR known.messages < $4)
        RETURNING messages";
    TenantSql SESSIONS_OF_TENANT = "
        SELECT id, user_id, profile, active, messages, created_at, updated_at FROM sessions
        WHERE tenant_id = $1 AND id < $2 ORDER BY id DESC LIMIT $3";
    TenantSql SESSIONS_OF_USER = "
        SELECT id, user_id, profile, active, messages, created_at, updated_at FROM sessions
        WHERE tenant_id = $1 AND user_id = $4 AND id < $2 ORDER BY id DESC LIMIT $3";
    TenantSql SESSION_OF_TENANT = "
        SELECT id, user_id, profile, active, messages, created_at, updated_at FROM sessions
        WHERE tenant_id = $1 AND id = $2";
    TenantSql MESSAGES_OF_TENANT = "
        SELECT id, session_id, role, content, response_id, created_at FROM messages
        WHERE tenant_id = $1 AND session_id = $2 AND id < $3 ORDER BY id DESC LIMIT $4";
}

impl<E: SqlEngine> SessionStore for SqlStore<E> {
    fn join_queue<'a>(
        &'a self,
        scope: &'a Scope,
        profile: Option<&'a str>,
        process: ProcessId,
        now_ms: u64,
        message: Option<NewUserMessage>,
    ) -> Stored<'a, QueueEntry> {
        Box::pin(async move {
            // As long as entries cannot be released no more are made: otherwise they would accumulate.
            self.retry_releases().await?;
            let mark = rand::random::<i64>();
            let guard = self.pending_releases.guard(scope, Reservation::Marked(mark));
            let profile = profile.unwrap_or_default().to_owned();
            let arguments = (scope.clone(), NewEntry { profile, process, mark, now_ms }, message);
            let joined = self.engine.change(Repeat::Safe, arguments, |connection, (scope, entry, message)| {
                Box::pin(session_queue::join(connection, scope, entry, message.as_ref()))
            });
            let entry = joined.await?;
            guard.disarm();
            Ok(entry)
        })
    }

    fn is_next<'a>(&'a self, scope: &'a Scope, ticket: Ticket) -> Stored<'a, Option<bool>> {
        Box::pin(async move {
            // The caller asks again while it waits: what fails now is retried then.
            let _ = self.retry_releases().await;
            loop {
                let position = self.engine.read((scope.clone(), ticket), |connection, (scope, ticket)| {
                    Box::pin(session_queue::position(connection, scope, *ticket))
                });
                let (response_id, error) = match position.await? {
                    QueuePosition::Gone => return Ok(None),
                    QueuePosition::First => return Ok(Some(true)),
                    QueuePosition::Waiting => return Ok(Some(false)),
                    QueuePosition::BehindEnded { response_id, status } => {
                        (response_id, session_queue::ended_record(status))
                    }
                };
                let arguments = (scope.clone(), response_id, error);
                let released =
                    self.engine.transaction(Repeat::Safe, arguments, |connection, (scope, response_id, error)| {
                        Box::pin(session_queue::release(connection, scope, response_id, error.as_ref()))
                    });
                released.await?;
            }
        })
    }

    fn leave_queue<'a>(&'a self, scope: &'a Scope, ticket: Ticket, error: Option<MetadataRecord>) -> Stored<'a, ()> {
        self.release_reservation(scope, Reservation::Entry(ticket, error))
    }

    fn append_message<'a>(
        &'a self,
        scope: &'a Scope,
        ticket: Ticket,
        message: NewUserMessage,
    ) -> Stored<'a, Option<SessionHistory>> {
        self.engine.change(Repeat::Safe, (scope.clone(), ticket, message), |connection, (scope, ticket, message)| {
            Box::pin(session_queue::append(connection, scope, *ticket, message))
        })
    }

    fn sessions<'a>(&'a self, scope: &'a Scope, after: Option<i64>, limit: usize) -> Stored<'a, Vec<SessionRecord>> {
        self.engine.read((scope.clone(), before(after), limit), |connection, (scope, before, limit)| {
            Box::pin(connection.user(scope, SESSIONS, values![*before, *limit]).all(session))
        })
    }

    fn messages<'a>(
        &'a self,
        scope: &'a Scope,
        session_id: i64,
        after: Option<i64>,
        limit: usize,
    ) -> Stored<'a, Option<Vec<MessageRecord>>> {
        let arguments = (scope.clone(), session_id, before(after), limit);
        self.engine.read(arguments, |connection, (scope, session_id, before, limit)| {
            Box::pin(async move {
                if !connection.user(scope, SESSION, values![*session_id]).exists().await? {
                    return Ok(None);
                }
                let messages = connection.user(scope, MESSAGES, values![*session_id, *before, *limit]);
                let mut messages = messages.all(message).await?;
                add_metadata(connection, TenantKey::of_caller(scope), Records::ToolCalls, &mut messages).await?;
                Ok(Some(messages))
            })
        })
    }

    fn message<'a>(&'a self, scope: &'a Scope, id: i64) -> Stored<'a, Option<MessageRecord>> {
        self.engine.read((scope.clone(), id), |connection, (scope, id)| {
            Box::pin(async move {
                let found = connection.user(scope, MESSAGE, values![*id]).first(message).await?;
                let mut messages: Vec<MessageRecord> = found.into_iter().collect();
                add_metadata(connection, TenantKey::of_caller(scope), Records::All, &mut messages).await?;
                Ok(messages.pop())
            })
        })
    }

    fn response_of_answer<'a>(&'a self, scope: &'a Scope, provider_id: &'a str) -> Stored<'a, Option<String>> {
        self.engine.read((scope.clone(), provider_id.to_owned()), |connection, (scope, provider_id)| {
            let query = connection.user(scope, connection.sql().response_of_answer, values![provider_id]);
            Box::pin(query.first(|row| row.get(0)))
        })
    }

    fn response_of_answer_within<'a>(&'a self, within: Within<'a>, provider_id: &'a str) -> Stored<'a, Option<String>> {
        let arguments = (TenantKey::within(within), provider_id.to_owned());
        self.engine.read(arguments, |connection, (tenant, provider_id)| {
            Box::pin(async move {
                // The responses of earlier versions have no such id; the answers of assistants do.
                for statement in [connection.sql().response_of_provider, connection.sql().response_of_answer_within] {
                    let found = connection.tenant(*tenant, statement, values![provider_id]);
                    if let Some(id) = found.first(|row| row.get(0)).await? {
                        return Ok(Some(id));
                    }
                }
                Ok(None)
            })
        })
    }

    fn count_client_message<'a>(&'a self, scope: &'a Scope, day: u64, limit: u64) -> Stored<'a, bool> {
        // A repeated attempt would count twice.
        self.engine.change(Repeat::Never, (scope.clone(), day, limit), |connection, (scope, day, limit)| {
            Box::pin(connection.user(scope, COUNT_CLIENT_MESSAGE, values![*day, *limit]).exists())
        })
    }

    fn sessions_within<'a>(
        &'a self,
        within: Within<'a>,
        user: Option<&'a str>,
        after: Option<i64>,
        limit: usize,
    ) -> Stored<'a, Vec<SessionRecord>> {
        let arguments = (TenantKey::within(within), user.map(str::to_owned), before(after), limit);
        self.engine.read(arguments, |connection, (tenant, user, before, limit)| {
            let query = match user {
                None => connection.tenant(*tenant, SESSIONS_OF_TENANT, values![*before, *limit]),
                Some(user) => connection.tenant(*tenant, SESSIONS_OF_USER, values![*before, *limit, user]),
            };
            Box::pin(query.all(session))
        })
    }

    fn session_within<'a>(
        &'a self,
        within: Within<'a>,
        session_id: i64,
        after: Option<i64>,
        limit: usize,
    ) -> Stored<'a, Option<(SessionRecord, Vec<MessageRecord>)>> {
        let arguments = (TenantKey::within(within), session_id, before(after), limit);
        self.engine.read(arguments, |connection, (tenant, session_id, before, limit)| {
            Box::pin(async move {
                let found = connection.tenant(*tenant, SESSION_OF_TENANT, values![*session_id]);
                let Some(session) = found.first(session).await? else { return Ok(None) };
                let messages = connection.tenant(*tenant, MESSAGES_OF_TENANT, values![*session_id, *before, *limit]);
                let mut messages = messages.all(message).await?;
                add_metadata(connection, *tenant, Records::All, &mut messages).await?;
                Ok(Some((session, messages)))
            })
        })
    }
}

impl<E: SqlEngine> SqlStore<E> {
    /// Retries the pending releases. An error means that the store cannot be used now; the rest stays pending.
    pub(crate) async fn retry_releases(&self) -> Result<(), StoreError> {
        for _ in 0..self.pending_releases.count() {
            let Some(guard) = self.pending_releases.next() else { break };
            match self.try_release(guard.pending()).await {
                // A reservation that does not exist now was never made.
                Ok(_) if E::CHANGES_IN_ORDER => guard.disarm(),
                Ok(found) => guard.searched(found),
                // Another attempt would fail in the same way.
                Err(StoreError::Broken(_)) => guard.disarm(),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Releases a reservation, now or when the store can be used again.
    pub(crate) fn release_reservation<'a>(&'a self, scope: &Scope, reservation: Reservation) -> Stored<'a, ()> {
        let guard = self.pending_releases.guard(scope, reservation);
        let released = self.try_release(guard.pending());
        Box::pin(async move {
            released.await?;
            guard.disarm();
            Ok(())
        })
    }

    /// Releases a reservation. Returns whether there was one.
    fn try_release(&self, release: PendingRelease) -> Stored<'_, bool> {
        self.engine.transaction(Repeat::Safe, release, |connection, release| {
            Box::pin(async move {
                let scope = &release.scope;
                match &release.reservation {
                    Reservation::Marked(mark) => session_queue::leave_marked(connection, scope, *mark).await,
                    Reservation::Entry(ticket, error) => {
                        session_queue::leave(connection, scope, *ticket, error.as_ref()).await
                    }
                    Reservation::Step { session_id, response_id } => {
                        execute::drop_step(connection, scope, session_id, response_id).await
                    }
                }
            })
        })
    }
}

/// The id before which a page ends; the page is sorted newest first.
fn before(after: Option<i64>) -> i64 {
    after.unwrap_or(i64::MAX)
}

fn session(row: &dyn SqlRow) -> Result<SessionRecord, StoreError> {
    Ok(SessionRecord {
        id: row.get(0)?,
        user: row.get(1)?,
        // The column has an empty text where there is no profile.
        profile: Some(row.get(2)?).filter(|profile: &String| !profile.is_empty()),
        active: row.get(3)?,
        messages: row.get(4)?,
        created_at_ms: row.get(5)?,
        updated_at_ms: row.get(6)?,
    })
}

fn message(row: &dyn SqlRow) -> Result<MessageRecord, StoreError> {
    Ok(MessageRecord {
        id: row.get(0)?,
        session_id: row.get(1)?,
        role: row.get(2)?,
        content: row.get(3)?,
        response_id: row.optional(4)?,
        created_at_ms: row.get(5)?,
        metadata: Vec::new(),
    })
}

/// The records of messages that are read.
#[derive(Debug, Clone, Copy)]
enum Records {
    All,
    ToolCalls,
}

async fn add_metadata<C: SqlConnection>(
    connection: &C,
    tenant: TenantKey,
    wanted: Records,
    messages: &mut [MessageRecord],
) -> Result<(), C::Failure> {
    let ids: Vec<i64> = messages.iter().map(|message| message.id).collect();
    let statement = match wanted {
        Records::All => connection.sql().message_metadata,
        Records::ToolCalls => connection.sql().message_tool_calls,
    };
    let records = connection
        .tenant(tenant, statement, values![ids])
        .all(|row| Ok((row.get(0)?, MetadataRecord { kind: row.get(1)?, value: row.get(2)? })))
        .await?;
    let mut by_message: HashMap<i64, Vec<MetadataRecord>> = HashMap::new();
    for (id, record) in records {
        by_message.entry(id).or_default().push(record);
    }
    for message in messages {
        message.metadata = by_message.remove(&message.id).unwrap_or_default();
    }
    Ok(())
}
