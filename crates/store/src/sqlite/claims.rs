//! Requests that are done once: who works on one, and what it was answered.

use amalgam_core::{
    Operator, Scope, Stem,
    store::{Answer, Claim, Keyed, ProcessId},
};
use amalgam_protocol::Status;
use bytes::Bytes;

use super::{
    failure::Failure,
    job::Transaction,
    query::{Database, Tenant, bytes, int, owner_of},
    responses, sql,
    turns::process_bytes,
};

/// Takes a key for a request, or tells what became of it.
pub(super) fn claim(
    database: Database<'_>,
    scope: &Scope,
    keyed: &Keyed,
    body_hash: [u8; 32],
    response_id: &str,
    process: ProcessId,
    now_ms: u64,
) -> Result<Claim, Failure> {
    let (process, hash) = (process_bytes(process), &body_hash[..]);
    let added = database
        .user(scope, sql::ADD_CLAIM, &[&keyed.route, &keyed.key, &hash, &response_id, &int(now_ms)?, &&process[..]])?
        .run()?;
    if added == 1 {
        return Ok(Claim::First);
    }
    let known = database.user(scope, sql::CLAIM, &[&keyed.route, &keyed.key])?.first(|row| {
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
    known.ok_or_else(|| Failure::Broken("a claim is neither free nor taken".into()))
}

/// Answers a claim that is being worked on for a response, or gives it back; nothing when it was answered before, or is
/// another response's by now.
pub(super) fn settle(
    transaction: &Transaction<'_>,
    scope: &Scope,
    keyed: &Keyed,
    response_id: &str,
    answer: Option<&Answer>,
) -> Result<(), Failure> {
    let database = transaction.database;
    let (route, key) = (&keyed.route, &keyed.key);
    let settled = match answer {
        None => database.user(scope, sql::DROP_CLAIM, &[route, key, &response_id])?,
        Some(Answer::Stored) => {
            let none = None::<&str>;
            database.user(scope, sql::ANSWER_CLAIM, &[route, key, &response_id, &none, &none, &none])?
        }
        Some(Answer::Body { status, content_type, body }) => {
            database.user(scope, sql::ANSWER_CLAIM, &[route, key, &response_id, status, content_type, &&body[..]])?
        }
    };
    // A request with the same key waits for its response.
    if let Some(response_id) = settled.first(|row| Ok(row.get::<_, String>(0)?))? {
        transaction.notify(response_id);
    }
    Ok(())
}

/// Lets go of the claims of a process, of all or of those for some responses. One whose response lives on without it is
/// answered by that response, so that the same request does not run twice; the others are free again.
pub(super) fn release(
    transaction: &Transaction<'_>,
    operator: Operator,
    process: ProcessId,
    only: Option<&[String]>,
) -> Result<(), Failure> {
    let database = transaction.database;
    let held = database.operator(operator, sql::CLAIMS_HELD, &[&&process_bytes(process)[..]])?.all(|row| {
        let keyed = Keyed { route: row.get(2)?, key: row.get(3)? };
        Ok((owner_of(row.get(0)?, row.get(1)?, None)?, keyed, row.get::<_, String>(4)?))
    })?;
    for (scope, keyed, response_id) in held {
        if only.is_some_and(|only| !only.contains(&response_id)) {
            continue;
        }
        let status = match Stem::of(&response_id) {
            None => None,
            Some(stem) => database
                .tenant(Tenant::of_row(operator, scope.tenant_id()), sql::STATUS, &[&stem.as_str(), &response_id])?
                .first(|row| responses::status(row, 0))?,
        };
        let lives = status.is_some_and(|status| status != Status::Failed);
        settle(transaction, &scope, &keyed, &response_id, lives.then_some(&Answer::Stored))?;
    }
    Ok(())
}
