//! Sessions of assistants: their queue and their messages.

use std::collections::HashMap;

use amalgam_core::{
    Scope, StoreError,
    store::{
        MessageRecord, MetadataRecord, NewUserMessage, ProcessId, SessionHistory, SessionRecord, SessionStore, Stored,
        Ticket, Within, session_topic,
    },
};
use tokio_postgres::Row;

use super::{
    Postgres,
    connection::{Connection, Failure, Param},
    execute,
    job::{most, unsigned},
    pool::Lease,
    session_queue,
    sql::statements,
};
use crate::{
    assistant::{self, QueuePosition},
    pending_release::{PendingRelease, Reservation},
};

statements! {
    Caller SESSIONS = "
        SELECT id, user_id, profile, active, messages, created_at, updated_at FROM sessions
        WHERE tenant_id = $1 AND user_id = $2 AND id < $3 ORDER BY id DESC LIMIT $4";
    Caller SESSION = "SELECT 1 FROM sessions WHERE tenant_id = $1 AND user_id = $2 AND id = $3";
    Caller MESSAGES = "
        SELECT id, session_id, role, content, response_id, created_at FROM messages
        WHERE tenant_id = $1 AND user_id = $2 AND session_id = $3 AND id < $4 ORDER BY id DESC LIMIT $5";
    Caller MESSAGE = "
        SELECT id, session_id, role, content, response_id, created_at FROM messages
        WHERE tenant_id = $1 AND user_id = $2 AND id = $3";
    Admin SESSIONS_OF_TENANT = "
        SELECT id, user_id, profile, active, messages, created_at, updated_at FROM sessions
        WHERE tenant_id = $1 AND id < $2 ORDER BY id DESC LIMIT $3";
    Admin SESSIONS_OF_USER = "
        SELECT id, user_id, profile, active, messages, created_at, updated_at FROM sessions
        WHERE tenant_id = $1 AND user_id = $4 AND id < $2 ORDER BY id DESC LIMIT $3";
    Admin SESSION_OF_TENANT = "
        SELECT id, user_id, profile, active, messages, created_at, updated_at FROM sessions
        WHERE tenant_id = $1 AND id = $2";
    Admin MESSAGES_OF_TENANT = "
        SELECT id, session_id, role, content, response_id, created_at FROM messages
        WHERE tenant_id = $1 AND session_id = $2 AND id < $3 ORDER BY id DESC LIMIT $4";
    Caller RESPONSE_OF_ANSWER = "
        SELECT value::jsonb->>'turn_id' FROM message_metadata
        WHERE tenant_id = $1 AND user_id = $2 AND kind = 'model_usage' AND value::jsonb->>'response_id' = $3
        ORDER BY number DESC LIMIT 1";
    Admin RESPONSE_OF_PROVIDER = "
        SELECT id FROM responses
        WHERE tenant_id = $1 AND provenance::jsonb->>'provider_id' = $2
        ORDER BY number DESC LIMIT 1";
    Admin RESPONSE_OF_ANSWER_WITHIN = "
        SELECT value::jsonb->>'turn_id' FROM message_metadata
        WHERE tenant_id = $1 AND kind = 'model_usage' AND value::jsonb->>'response_id' = $2
        ORDER BY number DESC LIMIT 1";
    Admin METADATA = "
        SELECT message_id, kind, value FROM message_metadata
        WHERE tenant_id = $1 AND message_id = ANY ($2) ORDER BY message_id, number";
}

impl SessionStore for Postgres {
    fn join_queue<'a>(
        &'a self,
        scope: &'a Scope,
        profile: Option<&'a str>,
        process: ProcessId,
        now_ms: u64,
    ) -> Stored<'a, Ticket> {
        Box::pin(async move {
            // While entries cannot be released no more are made: otherwise they would accumulate.
            self.retry_releases().await?;
            let (mark, profile) = (rand::random::<i64>(), assistant::profile_column(profile));
            let guard = self.pending_releases.guard(scope, Reservation::Marked(mark));
            let taken = self.pool.repeatably(move |connection: Lease| async move {
                session_queue::join(&connection, scope, profile, process, mark, now_ms).await
            });
            let ticket = taken.await?;
            guard.disarm();
            Ok(ticket)
        })
    }

    fn is_next<'a>(&'a self, scope: &'a Scope, ticket: Ticket) -> Stored<'a, Option<bool>> {
        Box::pin(async move {
            // The caller asks again while it waits: what fails now is retried then.
            let _ = self.retry_releases().await;
            loop {
                let position = self.pool.repeatably(move |connection: Lease| async move {
                    session_queue::position(&connection, scope, ticket).await
                });
                match position.await? {
                    QueuePosition::Gone => return Ok(None),
                    QueuePosition::First => return Ok(Some(true)),
                    QueuePosition::Waiting => return Ok(Some(false)),
                    QueuePosition::BehindEnded { response_id, status } => {
                        let (id, error) = (response_id.as_str(), &assistant::ended(status));
                        let freed = self.pool.repeatably(move |connection: Lease| async move {
                            session_queue::release(&connection, scope.tenant_id(), scope.user(), id, error.as_ref())
                                .await
                        });
                        freed.await?;
                    }
                }
            }
        })
    }

    fn leave_queue<'a>(&'a self, scope: &'a Scope, ticket: Ticket, error: Option<MetadataRecord>) -> Stored<'a, ()> {
        self.release_entry(scope, Reservation::Entry(ticket, error))
    }

    fn append_message<'a>(
        &'a self,
        scope: &'a Scope,
        ticket: Ticket,
        words: NewUserMessage,
    ) -> Stored<'a, Option<SessionHistory>> {
        Box::pin(async move {
            let words = &words;
            let spoken = self.pool.repeatably(move |connection: Lease| async move {
                session_queue::append(&connection, scope, ticket, words).await
            });
            spoken.await
        })
    }

    fn sessions<'a>(&'a self, scope: &'a Scope, after: Option<i64>, limit: usize) -> Stored<'a, Vec<SessionRecord>> {
        Box::pin(self.pool.repeatably(move |connection: Lease| async move {
            let params: [Param<'_>; 4] = [&scope.tenant_id(), &scope.user(), &behind(after), &most(limit)];
            connection.rows(&SESSIONS, &params).await?.iter().map(session_from).collect()
        }))
    }

    fn messages<'a>(
        &'a self,
        scope: &'a Scope,
        session_id: i64,
        after: Option<i64>,
        limit: usize,
    ) -> Stored<'a, Option<Vec<MessageRecord>>> {
        Box::pin(self.pool.repeatably(move |connection: Lease| async move {
            let (tenant_id, user) = (scope.tenant_id(), scope.user());
            if connection.row(&SESSION, &[&tenant_id, &user, &session_id]).await?.is_none() {
                return Ok(None);
            }
            let params: [Param<'_>; 5] = [&tenant_id, &user, &session_id, &behind(after), &most(limit)];
            let messages = connection.rows(&MESSAGES, &params).await?;
            messages.iter().map(message_from).collect::<Result<_, _>>().map(Some)
        }))
    }

    fn message<'a>(&'a self, scope: &'a Scope, id: i64) -> Stored<'a, Option<MessageRecord>> {
        Box::pin(self.pool.repeatably(move |connection: Lease| async move {
            let found = connection.row(&MESSAGE, &[&scope.tenant_id(), &scope.user(), &id]).await?;
            let Some(row) = found else { return Ok(None) };
            let mut messages = vec![message_from(&row)?];
            add_metadata(&connection, scope.tenant_id(), &mut messages).await?;
            Ok(messages.pop())
        }))
    }

    fn response_of_answer<'a>(&'a self, scope: &'a Scope, provider_id: &'a str) -> Stored<'a, Option<String>> {
        Box::pin(self.pool.repeatably(move |connection: Lease| async move {
            let values: [Param<'_>; 3] = [&scope.tenant_id(), &scope.user(), &provider_id];
            let found = connection.row(&RESPONSE_OF_ANSWER, &values).await?;
            Ok(found.map(|row| row.try_get(0)).transpose()?)
        }))
    }

    fn response_of_answer_within<'a>(&'a self, within: Within<'a>, provider_id: &'a str) -> Stored<'a, Option<String>> {
        let tenant_id = within.tenant_id();
        Box::pin(self.pool.repeatably(move |connection: Lease| async move {
            // Responses of earlier versions do not have it; the answers of assistants do.
            for statement in [&RESPONSE_OF_PROVIDER, &RESPONSE_OF_ANSWER_WITHIN] {
                if let Some(row) = connection.row(statement, &[&tenant_id, &provider_id]).await? {
                    return Ok(Some(row.try_get(0)?));
                }
            }
            Ok(None)
        }))
    }

    fn sessions_within<'a>(
        &'a self,
        within: Within<'a>,
        user: Option<&'a str>,
        after: Option<i64>,
        limit: usize,
    ) -> Stored<'a, Vec<SessionRecord>> {
        Box::pin(self.pool.repeatably(move |connection: Lease| async move {
            let (tenant_id, after, limit) = (within.tenant_id(), behind(after), most(limit));
            let found = match user {
                None => connection.rows(&SESSIONS_OF_TENANT, &[&tenant_id, &after, &limit]).await?,
                Some(user) => connection.rows(&SESSIONS_OF_USER, &[&tenant_id, &after, &limit, &user]).await?,
            };
            found.iter().map(session_from).collect()
        }))
    }

    fn session_within<'a>(
        &'a self,
        within: Within<'a>,
        session_id: i64,
        after: Option<i64>,
        limit: usize,
    ) -> Stored<'a, Option<(SessionRecord, Vec<MessageRecord>)>> {
        Box::pin(self.pool.repeatably(move |connection: Lease| async move {
            let tenant_id = within.tenant_id();
            let found = connection.row(&SESSION_OF_TENANT, &[&tenant_id, &session_id]).await?;
            let Some(session) = found.as_ref().map(session_from).transpose()? else { return Ok(None) };
            let params: [Param<'_>; 4] = [&tenant_id, &session_id, &behind(after), &most(limit)];
            let messages = connection.rows(&MESSAGES_OF_TENANT, &params).await?;
            let mut messages = messages.iter().map(message_from).collect::<Result<Vec<_>, _>>()?;
            add_metadata(&connection, tenant_id, &mut messages).await?;
            Ok(Some((session, messages)))
        }))
    }
}

impl Postgres {
    /// Retries the pending releases. An error means that the store cannot be used now; the rest stays pending.
    pub(super) async fn retry_releases(&self) -> Result<(), StoreError> {
        for _ in 0..self.pending_releases.count() {
            let Some(guard) = self.pending_releases.next() else { break };
            match self.try_release(&guard.pending()).await {
                Ok(found) => guard.searched(found),
                // Trying again would fail in the same way.
                Err(StoreError::Broken(_)) => guard.disarm(),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Releases a reservation, now or when the store can be used again.
    pub(super) fn release_entry<'a>(&'a self, scope: &'a Scope, reservation: Reservation) -> Stored<'a, ()> {
        Box::pin(async move {
            let guard = self.pending_releases.guard(scope, reservation);
            self.try_release(&guard.pending()).await?;
            guard.disarm();
            Ok(())
        })
    }

    /// Releases an entry or a step; whether there was one.
    async fn try_release(&self, release: &PendingRelease) -> Result<bool, StoreError> {
        let given_up = self.pool.repeatably(move |mut connection: Lease| async move {
            Ok(match &release.reservation {
                Reservation::Marked(mark) => {
                    session_queue::leave_marked(&connection, &release.scope, *mark).await?.map(session_topic)
                }
                Reservation::Entry(ticket, error) => {
                    let found = session_queue::leave(&connection, &release.scope, *ticket, error.as_ref()).await?;
                    found.then(|| session_topic(ticket.session_id))
                }
                Reservation::Step { session_id, response_id } => {
                    connection.begin().await?;
                    let found = execute::drop_step(&connection, &release.scope, session_id, response_id).await;
                    connection.end(found).await?.then(|| response_id.clone())
                }
            })
        });
        let topic = given_up.await?;
        self.notifications.notify(topic.as_deref());
        Ok(topic.is_some())
    }
}

/// The number that a page begins behind, downwards.
fn behind(after: Option<i64>) -> i64 {
    after.unwrap_or(i64::MAX)
}

fn session_from(row: &Row) -> Result<SessionRecord, Failure> {
    Ok(SessionRecord {
        id: row.try_get(0)?,
        user: row.try_get(1)?,
        profile: assistant::profile_from(row.try_get(2)?),
        active: row.try_get(3)?,
        messages: unsigned(row.try_get(4)?),
        created_at_ms: unsigned(row.try_get(5)?),
        updated_at_ms: unsigned(row.try_get(6)?),
    })
}

fn message_from(row: &Row) -> Result<MessageRecord, Failure> {
    Ok(MessageRecord {
        id: row.try_get(0)?,
        session_id: row.try_get(1)?,
        role: row.try_get(2)?,
        content: row.try_get(3)?,
        response_id: row.try_get(4)?,
        created_at_ms: unsigned(row.try_get(5)?),
        metadata: Vec::new(),
    })
}

async fn add_metadata(connection: &Connection, tenant_id: i64, messages: &mut [MessageRecord]) -> Result<(), Failure> {
    let ids: Vec<i64> = messages.iter().map(|message| message.id).collect();
    let mut known: HashMap<i64, Vec<MetadataRecord>> = HashMap::new();
    for row in connection.rows(&METADATA, &[&tenant_id, &ids]).await? {
        let record = assistant::record(row.try_get(1)?, row.try_get(2)?);
        known.entry(row.try_get(0)?).or_default().push(record);
    }
    for message in messages {
        message.metadata = known.remove(&message.id).unwrap_or_default();
    }
    Ok(())
}
