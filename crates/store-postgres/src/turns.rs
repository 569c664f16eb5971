//! Writes of turns besides their steps: claims of idempotency keys; and turns as administrators see them.
use std::sync::Arc;

use amalgam_core::{
    Admin, Scope, Stem, StoreError, TurnSummary,
    store::{Answer, Claim, IdempotencyKey, ProcessId, Stored, TurnRecord, TurnStore, TurnWrite, WriteOutcome},
};
use amalgam_store::{rows::process_bytes, statements};
use bytes::Bytes;
use tokio::sync::oneshot;
use tokio_postgres::Row;

use super::{
    Postgres,
    batch::{self, answer_columns},
    connection::{Param, PostgresFailure},
    job::{Job, signed},
    journal,
    pool::Lease,
    responses::response_from,
    turn_list,
};

statements! {
    UserSql CLAIM = "
        INSERT INTO idempotency (tenant_id, user_id, route, key, body_hash, response_id, process, created_at)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
        ON CONFLICT (tenant_id, user_id, route, key) DO NOTHING";
    UserSql CLAIMED = "
        SELECT body_hash, response_id, process, status, content_type, body FROM idempotency
        WHERE tenant_id = $1 AND user_id = $2 AND route = $3 AND key = $4";
    UserSql SETTLE = "
        UPDATE idempotency SET process = NULL, status = $6, content_type = $7, body = $8
        WHERE tenant_id = $1 AND user_id = $2 AND route = $3 AND key = $4 AND response_id = $5 AND process IS NOT NULL
        RETURNING response_id, pg_notify('amalgam_changed', response_id)::text";
    UserSql UNCLAIM = "
        DELETE FROM idempotency
        WHERE tenant_id = $1 AND user_id = $2 AND route = $3 AND key = $4 AND response_id = $5 AND process IS NOT NULL
        RETURNING response_id, pg_notify('amalgam_changed', response_id)::text";
    TenantSql TURN = "
        SELECT r.id, r.status, r.completed_at, r.error, r.incomplete_reason, r.usage, r.created_at, r.settings,
            r.background, r.streamed, r.conversation_id, r.chain, r.position, i.input, i.output, r.provenance,
            r.user_id
        FROM responses r JOIN items i ON i.chain = r.chain AND i.position = r.position AND i.tenant_id = r.tenant_id
        WHERE r.tenant_id = $1 AND r.stem = $2 AND r.id = $3";
}

impl TurnStore for Postgres {
    fn write<'a>(&'a self, scope: &'a Scope, write: Arc<TurnWrite>) -> Stored<'a, WriteOutcome> {
        Box::pin(async move {
            match (Stem::of(&write.response_id), &write.begin) {
                (Some(stem), _) => self.writers.write(scope, stem, write).await,
                (None, None) => Ok(WriteOutcome::Lost),
                (None, Some(_)) => Err(StoreError::Broken("a response's id has another form".to_owned())),
            }
        })
    }

    fn add_unfinished<'a>(&'a self, scope: &'a Scope, lost: Arc<TurnWrite>) -> Stored<'a, ()> {
        Box::pin(async move {
            let Some(stem) = Stem::of(&lost.response_id) else { return Ok(()) };
            let job = &Job::new(scope, stem, lost, oneshot::channel().0);
            let added = self
                .pool
                .repeatably(move |connection: Lease| async move { batch::add_unfinished(&connection, job).await });
            added.await?;
            self.notifications.notify([job.write.response_id.as_str()]);
            Ok(())
        })
    }

    fn add_summaries(&self, summaries: Vec<TurnSummary>) -> Stored<'_, ()> {
        Box::pin(async move {
            let summaries = &summaries;
            let added = self.pool.repeatably(move |connection: Lease| async move {
                let statement = connection.prepared(turn_list::PUT_TURNS).await?;
                let turns: Vec<_> = summaries.iter().map(|summary| (summary, None)).collect();
                turn_list::put(connection.client(), &statement, &turns).await?;
                Ok(())
            });
            added.await
        })
    }

    fn claim<'a>(
        &'a self,
        scope: &'a Scope,
        idempotency_key: &'a IdempotencyKey,
        body_hash: [u8; 32],
        response_id: &'a str,
        process: ProcessId,
        now_ms: u64,
    ) -> Stored<'a, Claim> {
        Box::pin(self.pool.repeatably(move |connection: Lease| async move {
            let (tenant_id, user, process) = (scope.tenant_id(), scope.user(), process_bytes(process));
            let (hash, process) = (body_hash.as_slice(), process.as_slice());
            // A claim that is released between the two statements is claimed again.
            for _ in 0..CLAIM_TRIES {
                let params: [Param<'_>; 8] = [
                    &tenant_id,
                    &user,
                    &idempotency_key.route,
                    &idempotency_key.key,
                    &hash,
                    &response_id,
                    &process,
                    &signed(now_ms),
                ];
                if connection.execute(CLAIM, &params).await? == 1 {
                    return Ok(Claim::First);
                }
                let params: [Param<'_>; 4] = [&tenant_id, &user, &idempotency_key.route, &idempotency_key.key];
                if let Some(row) = connection.row(CLAIMED, &params).await? {
                    return claim_from(&row, hash, response_id, process);
                }
            }
            Err(PostgresFailure::contended("the key is claimed and given back all the time"))
        }))
    }

    fn settle<'a>(
        &'a self,
        scope: &'a Scope,
        idempotency_key: &'a IdempotencyKey,
        response_id: &'a str,
        answer: Option<Answer>,
    ) -> Stored<'a, ()> {
        Box::pin(async move {
            let answer = &answer;
            let settled = self.pool.repeatably(move |connection: Lease| async move {
                let (tenant_id, user) = (scope.tenant_id(), scope.user());
                let mut params: Vec<Param<'_>> =
                    vec![&tenant_id, &user, &idempotency_key.route, &idempotency_key.key, &response_id];
                let Some(answer) = answer else { return connection.row(UNCLAIM, &params).await };
                let (status, content_type, body) = answer_columns(answer);
                params.extend([&status as Param<'_>, &content_type, &body]);
                connection.row(SETTLE, &params).await
            });
            if let Some(row) = settled.await? {
                self.notifications.notify([row.try_get::<_, &str>(0).unwrap_or_default()]);
            }
            Ok(())
        })
    }

    fn turn<'a>(&'a self, admin: Admin<'a>, response_id: &'a str) -> Stored<'a, Option<TurnRecord>> {
        Box::pin(async move {
            let Some(stem) = Stem::of(response_id) else { return Ok(None) };
            let found = self.pool.repeatably(move |connection: Lease| async move {
                let tenant_id = admin.tenant_id();
                let Some(row) = connection.row(TURN, &[&tenant_id, &stem.as_str(), &response_id]).await? else {
                    return Ok(None);
                };
                let tools = journal::runs(&connection, tenant_id, response_id).await?;
                Ok(Some(TurnRecord { response: response_from(&row)?, user: row.try_get(16)?, tools }))
            });
            found.await
        })
    }
}

/// The number of attempts for a key that other requests claim and release.
const CLAIM_TRIES: usize = 8;

fn claim_from(row: &Row, hash: &[u8], response_id: &str, process: &[u8]) -> Result<Claim, PostgresFailure> {
    let first: String = row.try_get(1)?;
    let worked_on: Option<&[u8]> = row.try_get(2)?;
    if row.try_get::<_, &[u8]>(0)? != hash {
        return Ok(Claim::Mismatch);
    }
    Ok(match worked_on {
        // This request's own claim, whose result was lost.
        Some(by) if by == process && first == response_id => Claim::First,
        Some(_) => Claim::Running { response_id: first },
        None => Claim::Done { response_id: first, answer: answer_from(row)? },
    })
}

fn answer_from(row: &Row) -> Result<Answer, PostgresFailure> {
    let Some(status) = row.try_get::<_, Option<i32>>(3)? else { return Ok(Answer::Stored) };
    Ok(Answer::Body {
        status: u16::try_from(status).map_err(|_| PostgresFailure::broken("the status of an answer is none"))?,
        content_type: row.try_get::<_, Option<String>>(4)?.unwrap_or_default(),
        body: row.try_get::<_, Option<&[u8]>>(5)?.map(Bytes::copy_from_slice).unwrap_or_default(),
    })
}
