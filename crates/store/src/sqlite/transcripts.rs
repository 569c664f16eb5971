//! Calls of models: kept exactly, each request behind the beginning that it shares with an earlier one.

use amalgam_core::{
    Scope, Stem,
    store::{Base, Transcript, TurnRecord},
};
use amalgam_protocol::Status;
use bytes::Bytes;
use rusqlite::Row;

use super::{
    failure::Failure,
    journal,
    query::{Database, Tenant, bytes, int, optional_int, optional_text, optional_uint, uint},
    responses::{self, stored_response},
    sql,
};
use crate::rows::{self, Pieces};

pub(super) fn add(database: Database<'_>, scope: &Scope, id: &str, call: &Transcript) -> Result<(), Failure> {
    let losses = rows::losses_json(&call.losses);
    database
        .user(
            scope,
            sql::ADD_TRANSCRIPT,
            &[
                &id,
                &call.number,
                &call.upstream,
                &call.model,
                &int(call.asked_at_ms)?,
                &optional_int(call.first_token_ms)?,
                &int(call.duration_ms)?,
                &call.retries,
                &call.cut,
                &call.usage.as_ref().map(|usage| usage.raw().text()),
                &losses.as_ref().map(|losses| losses.raw().text()),
                &call.error,
                &&call.request[..],
                &&call.response[..],
                &call.base.as_ref().map(|base| &base.response_id),
                &call.base.as_ref().map(|base| base.number),
                &optional_int(call.base.as_ref().map(|base| base.shared))?,
            ],
        )?
        .run()?;
    Ok(())
}

/// A turn with its calls, whole.
pub(super) fn turn(
    database: Database<'_>,
    tenant: Tenant,
    stem: Stem,
    id: &str,
) -> Result<Option<TurnRecord>, Failure> {
    let found = database
        .tenant(tenant, sql::TURN, &[&stem.as_str(), &id])?
        .first(|row| Ok((stored_response(row)?, row.get::<_, String>(15)?)))?;
    let Some((response, user)) = found else { return Ok(None) };
    let mut transcripts = database.tenant(tenant, sql::TRANSCRIPTS, &[&id])?.all(transcript)?;
    for call in &mut transcripts {
        let mut pieces = Pieces::of(call);
        while let Some(base) = pieces.next() {
            let earlier = database
                .tenant(tenant, sql::TRANSCRIPT_BASE, &[&base.response_id, &base.number])?
                .first(|row| Ok((Bytes::copy_from_slice(bytes(row, 0)?), base_of(row, 1)?)))?;
            pieces.push(earlier);
        }
        (call.request, call.base) = pieces.whole();
    }
    let tools = journal::runs(database, tenant, id)?;
    Ok(Some(TurnRecord { response, user, transcripts, tools }))
}

/// Adds calls of a response that has ended, unless it has some.
pub(super) fn add_late(database: Database<'_>, scope: &Scope, id: &str, calls: &[Transcript]) -> Result<(), Failure> {
    let Some(stem) = Stem::of(id) else { return Ok(()) };
    let status = database.user(scope, sql::HEAD, &[&stem.as_str(), &id])?.first(|row| responses::status(row, 0))?;
    let has_ended = status.is_some_and(Status::is_final);
    if has_ended && !database.user(scope, sql::HAS_TRANSCRIPTS, &[&id])?.exists()? {
        calls.iter().try_for_each(|call| add(database, scope, id, call))?;
    }
    Ok(())
}

/// Forgets the calls of responses whose items are gone, but not what the calls of others build on.
pub(super) fn forget(database: Database<'_>, scope: &Scope, gone: &[String]) -> Result<(), Failure> {
    for response_id in gone {
        let mut bases = database.user(scope, sql::FORGET_TRANSCRIPTS, &[response_id])?.all(base_key)?;
        while let Some(base) = bases.pop() {
            let Some((response_id, number)) = base else { continue };
            if gone.contains(&response_id) {
                bases.extend(database.user(scope, sql::FORGET_TRANSCRIPT, &[&response_id, &number])?.all(base_key)?);
            }
        }
    }
    Ok(())
}

fn base_key(row: &Row<'_>) -> Result<Option<(String, u32)>, Failure> {
    let Some(response_id) = row.get(0)? else { return Ok(None) };
    Ok(Some((response_id, row.get(1)?)))
}

fn base_of(row: &Row<'_>, column: usize) -> Result<Option<Base>, Failure> {
    let Some(response_id) = row.get::<_, Option<String>>(column)? else { return Ok(None) };
    Ok(Some(Base { response_id, number: row.get(column + 1)?, shared: uint(row, column + 2)? }))
}

fn transcript(row: &Row<'_>) -> Result<Transcript, Failure> {
    Ok(Transcript {
        number: row.get(0)?,
        upstream: row.get(1)?,
        model: row.get(2)?,
        asked_at_ms: uint(row, 3)?,
        first_token_ms: optional_uint(row, 4)?,
        duration_ms: uint(row, 5)?,
        retries: row.get(6)?,
        base: base_of(row, 13)?,
        request: Bytes::copy_from_slice(bytes(row, 7)?),
        response: Bytes::copy_from_slice(bytes(row, 8)?),
        cut: row.get(9)?,
        usage: optional_text(row, 10)?.map(rows::json),
        losses: rows::losses(optional_text(row, 11)?),
        error: row.get(12)?,
    })
}
