//! Model calls: stored exactly, each request as the part after the prefix that it shares with an earlier one.
use amalgam_core::{
    Scope, Stem,
    store::{Transcript, TurnRecord},
};
use amalgam_protocol::Status;
use amalgam_store::{TenantKey, rows, statements};
use rusqlite::Row;

use super::{
    failure::SqliteFailure,
    journal,
    query::{Database, int, optional_int},
    responses::{self, stored_response},
    turns,
};

statements! {
    UserSql ADD_TRANSCRIPT = "
        INSERT INTO transcripts (id, tenant_id, user_id, response_id, number, upstream, model, asked_at, first_token_ms,
            duration_ms, retries, cut, usage, losses, error, request, response, base_response, base_number, base_shared)
        VALUES (
            COALESCE((
                SELECT id + 1 FROM transcripts WHERE id >= (?7 << 20) AND id < ((?7 + 600000) << 20)
                ORDER BY id DESC LIMIT 1
            ), ?7 << 20),
            ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19)";
    UserSql HAS_TRANSCRIPTS = "
        SELECT 1 FROM transcripts WHERE tenant_id = ?1 AND user_id = ?2 AND response_id = ?3";
    UserSql FORGET_TRANSCRIPTS = "
        DELETE FROM transcripts WHERE tenant_id = ?1 AND user_id = ?2 AND response_id = ?3
            AND NOT EXISTS (
                SELECT 1 FROM transcripts AS later
                WHERE later.base_response = transcripts.response_id AND later.base_number = transcripts.number
            )
        RETURNING base_response, base_number";
    UserSql FORGET_TRANSCRIPT = "
        DELETE FROM transcripts WHERE tenant_id = ?1 AND user_id = ?2 AND response_id = ?3 AND number = ?4
            AND NOT EXISTS (SELECT 1 FROM transcripts AS later WHERE later.base_response = ?3 AND later.base_number = ?4)
        RETURNING base_response, base_number";
    TenantSql TURN = "
        SELECT responses.id, status, completed_at, error, incomplete_reason, usage, created_at, settings, background,
            streamed, conversation_id, responses.place, input, output, provenance, responses.user_id
        FROM responses CROSS JOIN items ON items.place = responses.place
        WHERE responses.tenant_id = ?1 AND stem = ?2 AND id = ?3";
}

pub(super) fn add(database: Database<'_>, scope: &Scope, id: &str, call: &Transcript) -> Result<(), SqliteFailure> {
    let losses = rows::losses_json(&call.losses);
    database
        .user(
            scope,
            ADD_TRANSCRIPT,
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

/// A turn without its model calls.
pub(super) fn turn(
    database: Database<'_>,
    tenant: TenantKey,
    stem: Stem,
    id: &str,
) -> Result<Option<TurnRecord>, SqliteFailure> {
    let found = database
        .tenant(tenant, TURN, &[&stem.as_str(), &id])?
        .first(|row| Ok((stored_response(row)?, row.get::<_, String>(15)?)))?;
    let Some((response, user)) = found else { return Ok(None) };
    let tools = journal::runs(database, tenant, id)?;
    Ok(Some(TurnRecord { response, user, tools }))
}

/// Adds the model calls of a response that has ended, unless it has some.
pub(super) fn add_late(
    database: Database<'_>,
    scope: &Scope,
    id: &str,
    calls: &[Transcript],
) -> Result<(), SqliteFailure> {
    let Some(stem) = Stem::of(id) else { return Ok(()) };
    let status = database.user(scope, turns::HEAD, &[&stem.as_str(), &id])?.first(|row| responses::status(row, 0))?;
    let has_ended = status.is_some_and(Status::is_final);
    if has_ended && !database.user(scope, HAS_TRANSCRIPTS, &[&id])?.exists()? {
        calls.iter().try_for_each(|call| add(database, scope, id, call))?;
    }
    Ok(())
}

/// Deletes the model calls of responses whose items were deleted, except those that other calls refer to.
pub(super) fn forget(database: Database<'_>, scope: &Scope, gone: &[String]) -> Result<(), SqliteFailure> {
    for response_id in gone {
        let mut bases = database.user(scope, FORGET_TRANSCRIPTS, &[response_id])?.all(base_key)?;
        while let Some(base) = bases.pop() {
            let Some((response_id, number)) = base else { continue };
            if gone.contains(&response_id) {
                bases.extend(database.user(scope, FORGET_TRANSCRIPT, &[&response_id, &number])?.all(base_key)?);
            }
        }
    }
    Ok(())
}

fn base_key(row: &Row<'_>) -> Result<Option<(String, u32)>, SqliteFailure> {
    let Some(response_id) = row.get(0)? else { return Ok(None) };
    Ok(Some((response_id, row.get(1)?)))
}
