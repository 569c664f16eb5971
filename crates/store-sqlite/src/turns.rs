//! Writes of turns: each step in one job.
use std::sync::Arc;

use amalgam_core::{
    Admin, RawAnswer, Scope, Stem, TurnSummary, UpstreamMemory,
    store::{
        Answer, Begin, Claim, Ending, EventChunk, IdempotencyKey, ProcessId, Stored, TurnRecord, TurnStore, TurnWrite,
        WriteOutcome,
    },
};
use amalgam_protocol::{Json, Status};
use amalgam_store::{
    TenantKey, limits,
    rows::{self, process_bytes},
    statements,
};

use super::{
    Sqlite, claims, conversations,
    failure::SqliteFailure,
    item_positions,
    job::{self, Access, Transaction, submit},
    journal,
    query::{Database, Params, int, optional_int, text},
    responses, session_queue, transcripts, turn_list,
};

statements! {
    /// The row number contains the time, so that no index on the age is needed. Within ten minutes rows are appended in
    /// the order in which they are written, since inserting a row between others writes more pages.
    UserSql ADD_RESPONSE = "
        INSERT INTO responses (number, tenant_id, user_id, stem, id, place, status, background, streamed, created_at,
            completed_at, ended_at, error, incomplete_reason, usage, conversation_id, process, settings, request,
            upstream, provenance, raw_answer)
        VALUES (
            COALESCE((
                SELECT number + 1 FROM responses WHERE number >= (?9 << 20) AND number < ((?9 + 600000) << 20)
                ORDER BY number DESC LIMIT 1
            ), ?9 << 20),
            ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21)
        ON CONFLICT (tenant_id, stem) DO NOTHING";
    UserSql HEAD = "
        SELECT status, process, place, conversation_id, background FROM responses
        WHERE tenant_id = ?1 AND user_id = ?2 AND stem = ?3 AND id = ?4";
    UserSql KEEP_RAW_ANSWER = "
        UPDATE responses SET raw_answer = ?5 WHERE tenant_id = ?1 AND user_id = ?2 AND stem = ?3 AND id = ?4";
    UserSql START_RESPONSE = "
        UPDATE responses SET status = 'in_progress', process = ?5
        WHERE tenant_id = ?1 AND user_id = ?2 AND stem = ?3 AND id = ?4";
    UserSql END_RESPONSE = "
        UPDATE responses SET process = NULL, request = NULL, status = ?5, completed_at = ?6, ended_at = ?7, error = ?8,
            incomplete_reason = ?9, usage = ?10, upstream = ?11, provenance = ?12
        WHERE tenant_id = ?1 AND user_id = ?2 AND stem = ?3 AND id = ?4";
    /// The usage of a turn that was cancelled by another request, unless it is stored.
    UserSql COMPLETE_CANCELLED = "
        UPDATE responses SET usage = ?5, provenance = ?6
        WHERE tenant_id = ?1 AND user_id = ?2 AND stem = ?3 AND id = ?4 AND status = 'cancelled' AND provenance IS NULL";
    UserSql END_ITEMS = "
        UPDATE items SET output = ?4 WHERE tenant_id = ?1 AND user_id = ?2 AND place = ?3";
    UserSql INPUT = "SELECT input FROM items WHERE tenant_id = ?1 AND user_id = ?2 AND place = ?3";
    UserSql ADD_EVENTS = "
        INSERT INTO stream_events (tenant_id, user_id, response_id, first, last, frames)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
}

impl TurnStore for Sqlite {
    fn write<'a>(&'a self, scope: &'a Scope, write: Arc<TurnWrite>) -> Stored<'a, WriteOutcome> {
        let scope = scope.clone();
        if write.settlements.is_empty() {
            return self.write_with(move |transaction| step(transaction, &scope, &write));
        }
        submit(&self.writes, Access::Write, move |connection| {
            let written = connection.with(|transaction| step(transaction, &scope, &write))?;
            if written == WriteOutcome::Kept {
                job::outcome(limits::settle(connection, &write.settlements))?;
            }
            Ok(written)
        })
    }

    fn add_unfinished<'a>(&'a self, scope: &'a Scope, lost: Arc<TurnWrite>) -> Stored<'a, ()> {
        let scope = scope.clone();
        self.write_with(move |transaction| {
            transcripts::add_late(transaction.database, &scope, &lost.response_id, &lost.transcripts)?;
            if let Some(summary) = &lost.summary {
                turn_list::put(transaction, summary)?;
            }
            complete_cancelled(transaction, &scope, &lost)
        })
    }

    fn add_summaries(&self, summaries: Vec<TurnSummary>) -> Stored<'_, ()> {
        self.write_with(move |transaction| {
            summaries.iter().try_for_each(|summary| turn_list::put(transaction, summary))
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
        let (scope, idempotency_key, response_id) = (scope.clone(), idempotency_key.clone(), response_id.to_owned());
        self.write_with(move |transaction| {
            claims::claim(transaction.database, &scope, &idempotency_key, body_hash, &response_id, process, now_ms)
        })
    }

    fn settle<'a>(
        &'a self,
        scope: &'a Scope,
        idempotency_key: &'a IdempotencyKey,
        response_id: &'a str,
        answer: Option<Answer>,
    ) -> Stored<'a, ()> {
        let (scope, idempotency_key, response_id) = (scope.clone(), idempotency_key.clone(), response_id.to_owned());
        self.write_with(move |transaction| {
            claims::settle(transaction, &scope, &idempotency_key, &response_id, answer.as_ref())
        })
    }

    fn turn<'a>(&'a self, admin: Admin<'a>, response_id: &'a str) -> Stored<'a, Option<TurnRecord>> {
        let Some(stem) = Stem::of(response_id) else { return Box::pin(async { Ok(None) }) };
        let (tenant, id) = (TenantKey::of_admin(admin), response_id.to_owned());
        self.read_with(move |transaction| transcripts::turn(transaction.database, tenant, stem, &id))
    }
}

fn step(transaction: &Transaction<'_>, scope: &Scope, write: &TurnWrite) -> Result<WriteOutcome, SqliteFailure> {
    let id = write.response_id.as_str();
    let stem = Stem::of(id).ok_or_else(|| SqliteFailure::Broken(format!("`{id}` is no id of a response")))?;
    let database = transaction.database;
    let end = write.end.as_deref();
    let written = match &write.begin {
        Some(begin) => self::begin(database, scope, stem, write, begin)?,
        None => continue_response(database, scope, stem, write)?,
    };
    let Some(conversation) = written else { return Ok(WriteOutcome::Lost) };
    if let Some(answer) = write.raw_answer.as_ref().filter(|_| write.begin.is_none()) {
        let answer = answer.to_json();
        database.user(scope, KEEP_RAW_ANSWER, &[&stem.as_str(), &id, &answer.raw().text()])?.run()?;
    }
    if let Some(events) = &write.events {
        add_events(database, scope, id, events)?;
    }
    for transcript in &write.transcripts {
        transcripts::add(database, scope, id, transcript)?;
    }
    journal::add(database, scope, write)?;
    if let Some(summary) = &write.summary {
        turn_list::put(transaction, summary)?;
    }
    if let Some(session) = &write.session {
        session_queue::end(transaction, scope, id, session)?;
    }
    if let (Some(conversation), Some(end)) = (conversation, end)
        && matches!(end.state.status, Status::Completed | Status::Incomplete)
    {
        conversations::append(database, scope, &conversation.id, [&conversation.input, &end.output])?;
    }
    if let Some((idempotency_key, answer)) = &write.answer {
        claims::settle(transaction, scope, idempotency_key, id, answer.as_ref())?;
    }
    if write.begin.as_ref().is_some_and(|begin| begin.status == Status::Queued) && end.is_none() {
        transaction.notify("");
    }
    transaction.notify(id);
    Ok(WriteOutcome::Kept)
}

/// The conversation that a turn belongs to, and its input, which the turn adds to it before its output.
struct ConversationInput {
    id: String,
    input: Json,
}

/// `None` if the write is lost; otherwise the conversation, if the turn ends and has one.
type StepOutcome = Option<Option<ConversationInput>>;

/// Creates the response, which may also end in the same step.
fn begin(
    database: Database<'_>,
    scope: &Scope,
    stem: Stem,
    write: &TurnWrite,
    begin: &Begin,
) -> Result<StepOutcome, SqliteFailure> {
    let id = write.response_id.as_str();
    // A background turn is inserted first and then ended, because the triggers for webhooks react to a change.
    let end = write.end.as_deref().filter(|_| !begin.background);
    let (input, output) = (begin.input.raw().text(), write.end.as_ref().map(|end| end.output.raw().text()));
    let taken = item_positions::take(database, scope, id, begin.parent.as_ref(), input, output)?;
    let Some(place) = taken else { return Ok(None) };

    // A queued turn has no owner until a process takes or starts it.
    let waits = begin.status == Status::Queued && begin.request.is_some() && !write.started;
    let process = process_bytes(write.process);
    let owner = (end.is_none() && !waits).then_some(&process[..]);
    let request = begin.request.as_deref().filter(|_| end.is_none());
    let status = match end {
        Some(end) => end.state.status,
        None if write.started => Status::InProgress,
        None => begin.status,
    };
    let columns = EndColumns::new(end)?;
    let settings = std::str::from_utf8(&begin.settings)
        .map_err(|_| SqliteFailure::Broken("the settings of a response are not text".into()))?;
    let raw_answer = write.raw_answer.as_ref().map(RawAnswer::to_json);
    let added = database
        .user(
            scope,
            ADD_RESPONSE,
            &[
                &stem.as_str(),
                &id,
                &place.0,
                &status.name(),
                &begin.background,
                &begin.streamed,
                &int(begin.created_at_ms)?,
                &columns.completed_at,
                &columns.completed_at,
                &columns.error(),
                &columns.incomplete_reason,
                &columns.usage(),
                &begin.conversation,
                &owner,
                &settings,
                &request,
                &columns.upstream(),
                &columns.provenance(),
                &raw_answer.as_ref().map(|answer| answer.raw().text()),
            ],
        )?
        .run()?;
    if added == 0 {
        // The response exists: this write is repeated because the result of the first attempt was lost.
        item_positions::give_up(database, scope, place)?;
        return Ok(None);
    }
    if let Some(end) = write.end.as_deref().filter(|_| begin.background) {
        end_response(database, scope, stem, id, end)?;
    }
    Ok(Some(begin.conversation.clone().map(|id| ConversationInput { id, input: begin.input.clone() })))
}

/// The next step of an existing response, if this process still owns it.
fn continue_response(
    database: Database<'_>,
    scope: &Scope,
    stem: Stem,
    write: &TurnWrite,
) -> Result<StepOutcome, SqliteFailure> {
    let id = write.response_id.as_str();
    let process = process_bytes(write.process);
    let head = database.user(scope, HEAD, &[&stem.as_str(), &id])?.first(|row| {
        let owner: Option<Vec<u8>> = row.get(1)?;
        Ok((responses::status(row, 0)?, owner, row.get::<_, i64>(2)?, row.get::<_, Option<String>>(3)?))
    })?;
    let Some((status, owner, place, conversation)) = head else { return Ok(None) };
    let ours = match owner {
        Some(owner) => owner == process,
        // No owner yet: the process that starts it becomes the owner.
        None => write.started && status == Status::Queued,
    };
    // The second of two starts finds the turn running: one turn never runs twice.
    if !ours || status.is_final() || (write.started && status != Status::Queued) {
        return Ok(None);
    }
    if write.started {
        database.user(scope, START_RESPONSE, &[&stem.as_str(), &id, &&process[..]])?.run()?;
    }
    let Some(end) = write.end.as_deref() else { return Ok(Some(None)) };
    end_response(database, scope, stem, id, end)?;
    database.user(scope, END_ITEMS, &[&place, &end.output.raw().text()])?.run()?;
    let Some(conversation) = conversation else { return Ok(Some(None)) };
    let input = database
        .user(scope, INPUT, &[&place])?
        .first(|row| Ok(rows::json(text(row, 0)?)))?
        .unwrap_or_else(|| rows::json(rows::NO_ITEMS));
    Ok(Some(Some(ConversationInput { id: conversation, input })))
}

fn end_response(
    database: Database<'_>,
    scope: &Scope,
    stem: Stem,
    id: &str,
    end: &Ending,
) -> Result<(), SqliteFailure> {
    let columns = EndColumns::new(Some(end))?;
    let ended_at = columns.completed_at;
    database
        .user(
            scope,
            END_RESPONSE,
            &[
                &stem.as_str(),
                &id,
                &end.state.status.name(),
                &columns.completed_at,
                &ended_at,
                &columns.error(),
                &columns.incomplete_reason,
                &columns.usage(),
                &columns.upstream(),
                &columns.provenance(),
            ],
        )?
        .run()?;
    Ok(())
}

/// The columns of the end of a response; empty for a running response.
#[derive(Default)]
struct EndColumns<'a> {
    completed_at: Option<i64>,
    error: Option<Json>,
    incomplete_reason: Option<&'a str>,
    usage: Option<Json>,
    upstream: Option<Json>,
    provenance: Option<Json>,
}

impl<'a> EndColumns<'a> {
    fn new(end: Option<&'a Ending>) -> Result<Self, SqliteFailure> {
        let Some(Ending { state, upstream, .. }) = end else { return Ok(Self::default()) };
        Ok(Self {
            completed_at: optional_int(state.completed_at_ms)?,
            error: state.error.as_ref().map(amalgam_protocol::ErrorObject::to_json),
            incomplete_reason: state.incomplete_reason.as_deref(),
            usage: state.usage.as_ref().map(rows::usage_json),
            upstream: upstream.as_ref().map(UpstreamMemory::to_json),
            provenance: Some(state.provenance.to_json()),
        })
    }

    fn error(&self) -> Option<&str> {
        self.error.as_ref().map(|json| json.raw().text())
    }

    fn usage(&self) -> Option<&str> {
        self.usage.as_ref().map(|json| json.raw().text())
    }

    fn upstream(&self) -> Option<&str> {
        self.upstream.as_ref().map(|json| json.raw().text())
    }

    fn provenance(&self) -> Option<&str> {
        self.provenance.as_ref().map(|json| json.raw().text())
    }
}

/// Adds the output of a turn that was cancelled by another request.
fn complete_cancelled(transaction: &Transaction<'_>, scope: &Scope, lost: &TurnWrite) -> Result<(), SqliteFailure> {
    let id = lost.response_id.as_str();
    let (Some(stem), Some(end)) = (Stem::of(id), &lost.end) else { return Ok(()) };
    let database = transaction.database;
    let columns = EndColumns::new(Some(end))?;
    let params: Params<'_> = &[&stem.as_str(), &id, &columns.usage(), &columns.provenance()];
    let completed = database.user(scope, COMPLETE_CANCELLED, params)?.run()?;
    let place = database.user(scope, HEAD, &[&stem.as_str(), &id])?.first(|row| Ok(row.get::<_, i64>(2)?))?;
    if let (1.., Some(place)) = (completed, place) {
        database.user(scope, END_ITEMS, &[&place, &end.output.raw().text()])?.run()?;
        transaction.notify(id);
    }
    Ok(())
}

fn add_events(database: Database<'_>, scope: &Scope, id: &str, events: &EventChunk) -> Result<(), SqliteFailure> {
    let (first, last) = (int(events.first)?, int(events.last)?);
    database.user(scope, ADD_EVENTS, &[&id, &first, &last, &&events.frames[..]])?.run()?;
    Ok(())
}
