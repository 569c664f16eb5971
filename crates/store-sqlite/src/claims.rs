//! Claims of idempotency keys: which process works on a request, and how it was answered.
use amalgam_core::{
    Operator, Scope, Stem,
    store::{Answer, Claim, IdempotencyKey, ProcessId},
};
use amalgam_protocol::Status;
use amalgam_store::{
    TenantKey,
    rows::{self, process_bytes},
    statements,
};
use bytes::Bytes;

use super::{
    failure::SqliteFailure,
    job::Transaction,
    query::{Database, bytes, int, text},
    responses,
};

statements! {
    UserSql ADD_CLAIM = "
        INSERT INTO idempotency (tenant_id, user_id, route, key, body_hash, response_id, created_at, process)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
        ON CONFLICT (tenant_id, user_id, route, key) DO NOTHING";
    UserSql CLAIM = "
        SELECT body_hash, response_id, process IS NOT NULL, answer_status, answer_type, answer_body FROM idempotency
        WHERE tenant_id = ?1 AND user_id = ?2 AND route = ?3 AND key = ?4";
    UserSql ANSWER_CLAIM = "
        UPDATE idempotency SET process = NULL, answer_status = ?6, answer_type = ?7, answer_body = ?8
        WHERE tenant_id = ?1 AND user_id = ?2 AND route = ?3 AND key = ?4 AND response_id = ?5
            AND process IS NOT NULL
        RETURNING response_id";
    UserSql DROP_CLAIM = "
        DELETE FROM idempotency
        WHERE tenant_id = ?1 AND user_id = ?2 AND route = ?3 AND key = ?4 AND response_id = ?5
            AND process IS NOT NULL
        RETURNING response_id";
    OperatorSql CLAIMS_HELD = "SELECT tenant_id, user_id, route, key, response_id FROM idempotency WHERE process = ?1";
}

/// Takes a key for a request, or returns the state of the request that has it.
pub(super) fn claim(
    database: Database<'_>,
    scope: &Scope,
    idempotency_key: &IdempotencyKey,
    body_hash: [u8; 32],
    response_id: &str,
    process: ProcessId,
    now_ms: u64,
) -> Result<Claim, SqliteFailure> {
    let (process, hash) = (process_bytes(process), &body_hash[..]);
    let added = database
        .user(
            scope,
            ADD_CLAIM,
            &[&idempotency_key.route, &idempotency_key.key, &hash, &response_id, &int(now_ms)?, &&process[..]],
        )?
        .run()?;
    if added == 1 {
        return Ok(Claim::First);
    }
    let known = database.user(scope, CLAIM, &[&idempotency_key.route, &idempotency_key.key])?.first(|row| {
        if bytes(row, 0)? != hash {
            return Ok(Claim::Mismatch);
        }
        let response_id = row.get(1)?;
        if row.get(2)? {
            return Ok(Claim::Running { response_id });
        }
        let answer = match row.get(3)? {
            None => Answer::Stored,
            Some(status) => {
                Answer::Body { status, content_type: row.get(4)?, body: Bytes::copy_from_slice(bytes(row, 5)?) }
            }
        };
        Ok(Claim::Done { response_id, answer })
    })?;
    known.ok_or_else(|| SqliteFailure::Broken("a claim is neither free nor taken".into()))
}

/// Answers or releases an unfinished claim for a response. No effect if the claim was answered before, or belongs to
/// another response by now.
pub(super) fn settle(
    transaction: &Transaction<'_>,
    scope: &Scope,
    idempotency_key: &IdempotencyKey,
    response_id: &str,
    answer: Option<&Answer>,
) -> Result<(), SqliteFailure> {
    let database = transaction.database;
    let (route, key) = (&idempotency_key.route, &idempotency_key.key);
    let settled = match answer {
        None => database.user(scope, DROP_CLAIM, &[route, key, &response_id])?,
        Some(Answer::Stored) => {
            let none = None::<&str>;
            database.user(scope, ANSWER_CLAIM, &[route, key, &response_id, &none, &none, &none])?
        }
        Some(Answer::Body { status, content_type, body }) => {
            database.user(scope, ANSWER_CLAIM, &[route, key, &response_id, status, content_type, &&body[..]])?
        }
    };
    // A request with the same key waits for its response.
    if let Some(response_id) = settled.first(|row| Ok(row.get::<_, String>(0)?))? {
        transaction.notify(response_id);
    }
    Ok(())
}

/// Settles the claims of a process, all or those for some responses. A claim whose response continues without its
/// request is answered by that response, so that the same request does not run twice; the others are released.
pub(super) fn release(
    transaction: &Transaction<'_>,
    operator: Operator,
    process: ProcessId,
    only: Option<&[String]>,
) -> Result<(), SqliteFailure> {
    let database = transaction.database;
    let held = database.operator(operator, CLAIMS_HELD, &[&&process_bytes(process)[..]])?.all(|row| {
        let idempotency_key = IdempotencyKey { route: row.get(2)?, key: row.get(3)? };
        Ok((rows::owner(row.get(0)?, text(row, 1)?, None)?, idempotency_key, row.get::<_, String>(4)?))
    })?;
    for (scope, idempotency_key, response_id) in held {
        if only.is_some_and(|only| !only.contains(&response_id)) {
            continue;
        }
        let status = match Stem::of(&response_id) {
            None => None,
            Some(stem) => database
                .tenant(
                    TenantKey::of_row(operator, scope.tenant_id()),
                    responses::STATUS,
                    &[&stem.as_str(), &response_id],
                )?
                .first(|row| responses::status(row, 0))?,
        };
        let lives = status.is_some_and(|status| status != Status::Failed);
        settle(transaction, &scope, &idempotency_key, &response_id, lives.then_some(&Answer::Stored))?;
    }
    Ok(())
}
