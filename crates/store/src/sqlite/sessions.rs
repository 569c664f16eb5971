//! Sessions of assistants: their queue and their messages.

use amalgam_core::{
    Scope, StoreError,
    store::{
        MessageRecord, MetadataRecord, NewUserMessage, ProcessId, SessionHistory, SessionRecord, SessionStore, Stored,
        Ticket, Within,
    },
};
use rusqlite::Row;

use super::{
    Sqlite, execute,
    failure::Failure,
    query::{Database, Tenant, most, text, uint},
    session_queue, sql,
};
use crate::{
    assistant::{self, QueuePosition},
    pending_release::{PendingRelease, Reservation},
};

impl SessionStore for Sqlite {
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
            let (mark, owner) = (rand::random::<i64>(), scope.clone());
            let profile = assistant::profile_column(profile).to_owned();
            let guard = self.pending_releases.guard(scope, Reservation::Marked(mark));
            let taken = self.change(move |transaction| {
                session_queue::join(transaction.database, &owner, &profile, process, mark, now_ms)
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
                let owner = scope.clone();
                let position =
                    self.read(move |transaction| session_queue::position(transaction.database, &owner, ticket));
                match position.await? {
                    QueuePosition::Gone => return Ok(None),
                    QueuePosition::First => return Ok(Some(true)),
                    QueuePosition::Waiting => return Ok(Some(false)),
                    QueuePosition::BehindEnded { response_id, status } => {
                        let (owner, error) = (scope.clone(), assistant::ended(status));
                        let freed = self.change(move |transaction| {
                            session_queue::release(transaction, &owner, &response_id, error.as_ref())
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
        let scope = scope.clone();
        self.change(move |transaction| session_queue::append(transaction.database, &scope, ticket, &words))
    }

    fn sessions<'a>(&'a self, scope: &'a Scope, after: Option<i64>, limit: usize) -> Stored<'a, Vec<SessionRecord>> {
        let scope = scope.clone();
        self.read(move |transaction| {
            let params: [&dyn rusqlite::ToSql; 2] = [&behind(after), &most(limit)];
            transaction.database.user(&scope, sql::SESSIONS, &params)?.all(session)
        })
    }

    fn messages<'a>(
        &'a self,
        scope: &'a Scope,
        session_id: i64,
        after: Option<i64>,
        limit: usize,
    ) -> Stored<'a, Option<Vec<MessageRecord>>> {
        let scope = scope.clone();
        self.read(move |transaction| {
            let database = transaction.database;
            if !database.user(&scope, sql::SESSION, &[&session_id])?.exists()? {
                return Ok(None);
            }
            let params: [&dyn rusqlite::ToSql; 3] = [&session_id, &behind(after), &most(limit)];
            database.user(&scope, sql::MESSAGES, &params)?.all(message).map(Some)
        })
    }

    fn message<'a>(&'a self, scope: &'a Scope, id: i64) -> Stored<'a, Option<MessageRecord>> {
        let scope = scope.clone();
        self.read(move |transaction| {
            let database = transaction.database;
            let found = database.user(&scope, sql::MESSAGE, &[&id])?.first(message)?;
            found.map(|message| with_metadata(database, Tenant::of_caller(&scope), message)).transpose()
        })
    }

    fn response_of_answer<'a>(&'a self, scope: &'a Scope, provider_id: &'a str) -> Stored<'a, Option<String>> {
        let (scope, provider_id) = (scope.clone(), provider_id.to_owned());
        self.read(move |transaction| {
            let found = transaction.database.user(&scope, sql::RESPONSE_OF_ANSWER, &[&provider_id])?;
            found.first(|row| Ok(row.get(0)?))
        })
    }

    fn response_of_answer_within<'a>(&'a self, within: Within<'a>, provider_id: &'a str) -> Stored<'a, Option<String>> {
        let (tenant, provider_id) = (Tenant::within(within), provider_id.to_owned());
        self.read(move |transaction| {
            let database = transaction.database;
            // Responses of earlier versions do not have it; the answers of assistants do.
            for statement in [sql::RESPONSE_OF_PROVIDER, sql::RESPONSE_OF_ANSWER_WITHIN] {
                let found = database.tenant(tenant, statement, &[&provider_id])?.first(|row| Ok(row.get(0)?))?;
                if found.is_some() {
                    return Ok(found);
                }
            }
            Ok(None)
        })
    }

    fn sessions_within<'a>(
        &'a self,
        within: Within<'a>,
        user: Option<&'a str>,
        after: Option<i64>,
        limit: usize,
    ) -> Stored<'a, Vec<SessionRecord>> {
        let (tenant, user) = (Tenant::within(within), user.map(str::to_owned));
        self.read(move |transaction| {
            let (database, after, limit) = (transaction.database, behind(after), most(limit));
            match &user {
                None => database.tenant(tenant, sql::SESSIONS_OF_TENANT, &[&after, &limit])?,
                Some(user) => database.tenant(tenant, sql::SESSIONS_OF_USER, &[&after, &limit, user])?,
            }
            .all(session)
        })
    }

    fn session_within<'a>(
        &'a self,
        within: Within<'a>,
        session_id: i64,
        after: Option<i64>,
        limit: usize,
    ) -> Stored<'a, Option<(SessionRecord, Vec<MessageRecord>)>> {
        let tenant = Tenant::within(within);
        self.read(move |transaction| {
            let database = transaction.database;
            let found = database.tenant(tenant, sql::SESSION_OF_TENANT, &[&session_id])?.first(session)?;
            let Some(session) = found else { return Ok(None) };
            let messages = database
                .tenant(tenant, sql::MESSAGES_OF_TENANT, &[&session_id, &behind(after), &most(limit)])?
                .all(message)?;
            let messages = messages.into_iter().map(|message| with_metadata(database, tenant, message));
            Ok(Some((session, messages.collect::<Result<_, _>>()?)))
        })
    }
}

impl Sqlite {
    /// Retries the pending releases. An error means that the store cannot be used now; the rest stays pending.
    pub(super) async fn retry_releases(&self) -> Result<(), StoreError> {
        for _ in 0..self.pending_releases.count() {
            let Some(guard) = self.pending_releases.next() else { break };
            match self.try_release(guard.pending()).await {
                // Jobs run in order: an entry that is not there now was never made.
                Ok(()) => guard.disarm(),
                // Trying again would fail in the same way.
                Err(StoreError::Broken(_)) => guard.disarm(),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Releases a reservation, now or when the store can be used again.
    pub(super) fn release_entry<'a>(&'a self, scope: &'a Scope, reservation: Reservation) -> Stored<'a, ()> {
        let guard = self.pending_releases.guard(scope, reservation);
        let left = self.try_release(guard.pending());
        Box::pin(async move {
            left.await?;
            guard.disarm();
            Ok(())
        })
    }

    fn try_release(&self, release: PendingRelease) -> Stored<'static, ()> {
        self.change(move |transaction| match &release.reservation {
            Reservation::Marked(mark) => session_queue::leave_marked(transaction, &release.scope, *mark),
            Reservation::Entry(ticket, error) => {
                session_queue::leave(transaction, &release.scope, *ticket, error.as_ref())
            }
            Reservation::Step { session_id, response_id } => {
                execute::drop_step(transaction, &release.scope, session_id, response_id)
            }
        })
    }
}

/// The number that a page begins behind, downwards.
fn behind(after: Option<i64>) -> i64 {
    after.unwrap_or(i64::MAX)
}

fn session(row: &Row<'_>) -> Result<SessionRecord, Failure> {
    Ok(SessionRecord {
        id: row.get(0)?,
        user: row.get(1)?,
        profile: assistant::profile_from(row.get(2)?),
        active: row.get(3)?,
        messages: uint(row, 4)?,
        created_at_ms: uint(row, 5)?,
        updated_at_ms: uint(row, 6)?,
    })
}

fn message(row: &Row<'_>) -> Result<MessageRecord, Failure> {
    Ok(MessageRecord {
        id: row.get(0)?,
        session_id: row.get(1)?,
        role: row.get(2)?,
        content: row.get(3)?,
        response_id: row.get(4)?,
        created_at_ms: uint(row, 5)?,
        metadata: Vec::new(),
    })
}

fn with_metadata(database: Database<'_>, tenant: Tenant, message: MessageRecord) -> Result<MessageRecord, Failure> {
    let metadata = database
        .tenant(tenant, sql::METADATA, &[&message.id])?
        .all(|row| Ok(assistant::record(row.get(0)?, text(row, 1)?)))?;
    Ok(MessageRecord { metadata, ..message })
}
