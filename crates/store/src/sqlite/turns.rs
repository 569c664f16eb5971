//! What turns write: each step in one piece of work.

use std::sync::Arc;

use amalgam_core::{
    Admin, Scope, Stem, UpstreamMemory,
    store::{
        Answer, Begin, Claim, Ending, EventChunk, Keyed, ProcessId, Stored, TurnRecord, TurnStore, TurnWrite, Written,
    },
};
use amalgam_protocol::{Json, Status};

use super::{
    Sqlite, claims, conversations,
    failure::Failure,
    item_positions,
    job::Transaction,
    journal,
    query::{Database, Params, Tenant, int, optional_int, text},
    responses, session_queue, sql, transcripts,
};
use crate::rows;

impl TurnStore for Sqlite {
    fn write<'a>(&'a self, scope: &'a Scope, write: Arc<TurnWrite>) -> Stored<'a, Written> {
        let scope = scope.clone();
        self.change(move |transaction| step(transaction, &scope, &write))
    }

    fn add_unfinished<'a>(&'a self, scope: &'a Scope, lost: Arc<TurnWrite>) -> Stored<'a, ()> {
        let scope = scope.clone();
        self.change(move |transaction| {
            transcripts::add_late(transaction.database, &scope, &lost.response_id, &lost.transcripts)?;
            complete_cancelled(transaction, &scope, &lost)
        })
    }

    fn claim<'a>(
        &'a self,
        scope: &'a Scope,
        keyed: &'a Keyed,
        body_hash: [u8; 32],
        response_id: &'a str,
        process: ProcessId,
        now_ms: u64,
    ) -> Stored<'a, Claim> {
        let (scope, keyed, response_id) = (scope.clone(), keyed.clone(), response_id.to_owned());
        self.change(move |transaction| {
            claims::claim(transaction.database, &scope, &keyed, body_hash, &response_id, process, now_ms)
        })
    }

    fn settle<'a>(
        &'a self,
        scope: &'a Scope,
        keyed: &'a Keyed,
        response_id: &'a str,
        answer: Option<Answer>,
    ) -> Stored<'a, ()> {
        let (scope, keyed, response_id) = (scope.clone(), keyed.clone(), response_id.to_owned());
        self.change(move |transaction| claims::settle(transaction, &scope, &keyed, &response_id, answer.as_ref()))
    }

    fn turn<'a>(&'a self, admin: Admin<'a>, response_id: &'a str) -> Stored<'a, Option<TurnRecord>> {
        let Some(stem) = Stem::of(response_id) else { return Box::pin(async { Ok(None) }) };
        let (tenant, id) = (Tenant::of(admin), response_id.to_owned());
        self.read(move |transaction| transcripts::turn(transaction.database, tenant, stem, &id))
    }
}

/// The bytes that a process is known by.
pub(super) fn process_bytes(process: ProcessId) -> [u8; 16] {
    process.0.to_be_bytes()
}

fn step(transaction: &Transaction<'_>, scope: &Scope, write: &TurnWrite) -> Result<Written, Failure> {
    let id = write.response_id.as_str();
    let stem = Stem::of(id).ok_or_else(|| Failure::Broken(format!("`{id}` is no id of a response")))?;
    let database = transaction.database;
    let end = write.end.as_deref();
    let written = match &write.begin {
        Some(begin) => self::begin(database, scope, stem, write, begin)?,
        None => go_on(database, scope, stem, write)?,
    };
    let Some(conversation) = written else { return Ok(Written::Lost) };
    if let Some(answer) = &write.raw_answer {
        let answer = answer.to_json();
        database.user(scope, sql::KEEP_RAW_ANSWER, &[&stem.as_str(), &id, &answer.raw().text()])?.run()?;
    }
    if let Some(events) = &write.events {
        add_events(database, scope, id, events)?;
    }
    for transcript in &write.transcripts {
        transcripts::add(database, scope, id, transcript)?;
    }
    journal::add(database, scope, write)?;
    if let Some(session) = &write.session {
        session_queue::end(transaction, scope, id, session)?;
    }
    if let (Some(conversation), Some(end)) = (conversation, end)
        && matches!(end.told.status, Status::Completed | Status::Incomplete)
    {
        conversations::append(database, scope, &conversation.id, [&conversation.input, &end.output])?;
    }
    if let Some((keyed, answer)) = &write.answer {
        claims::settle(transaction, scope, keyed, id, answer.as_ref())?;
    }
    if write.begin.as_ref().is_some_and(|begin| begin.status == Status::Queued) && end.is_none() {
        transaction.notify("");
    }
    transaction.notify(id);
    Ok(Written::Kept)
}

/// The conversation that a turn belongs to, and what the turn adds to it besides its output.
struct Talk {
    id: String,
    input: Json,
}

/// Nothing when the write is lost; else the conversation, if the turn ends and has one.
type Going = Option<Option<Talk>>;

/// The response comes into being, and may end in the same step.
fn begin(
    database: Database<'_>,
    scope: &Scope,
    stem: Stem,
    write: &TurnWrite,
    begin: &Begin,
) -> Result<Going, Failure> {
    let id = write.response_id.as_str();
    let end = write.end.as_deref();
    let (input, output) = (begin.input.raw().text(), end.map(|end| end.output.raw().text()));
    let taken = item_positions::take(database, scope, id, begin.parent.as_ref(), input, output)?;
    let Some(place) = taken else { return Ok(None) };

    // A queued turn has no owner until a process takes or starts it.
    let waits = begin.status == Status::Queued && begin.request.is_some() && !write.started;
    let process = process_bytes(write.process);
    let owner = (end.is_none() && !waits).then_some(&process[..]);
    let request = begin.request.as_deref().filter(|_| end.is_none());
    let status = match end {
        Some(end) => end.told.status,
        None if write.started => Status::InProgress,
        None => begin.status,
    };
    let columns = Told::new(end)?;
    let settings = std::str::from_utf8(&begin.settings)
        .map_err(|_| Failure::Broken("the settings of a response are not text".into()))?;
    let added = database
        .user(
            scope,
            sql::ADD_RESPONSE,
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
            ],
        )?
        .run()?;
    if added == 0 {
        // It is there already: a write whose answer got lost comes again.
        item_positions::give_up(database, scope, place)?;
        return Ok(None);
    }
    Ok(Some(begin.conversation.clone().map(|id| Talk { id, input: begin.input.clone() })))
}

/// The next step of a response that is there, if it is still this process's.
fn go_on(database: Database<'_>, scope: &Scope, stem: Stem, write: &TurnWrite) -> Result<Going, Failure> {
    let id = write.response_id.as_str();
    let process = process_bytes(write.process);
    let head = database.user(scope, sql::HEAD, &[&stem.as_str(), &id])?.first(|row| {
        let owner: Option<Vec<u8>> = row.get(1)?;
        Ok((responses::status(row, 0)?, owner, row.get::<_, i64>(2)?, row.get::<_, Option<String>>(3)?))
    })?;
    let Some((status, owner, place, conversation)) = head else { return Ok(None) };
    let ours = match owner {
        Some(owner) => owner == process,
        // No owner yet: the process that starts it becomes the owner.
        None => write.started && status == Status::Queued,
    };
    // A start that comes second finds it running: one turn never runs twice.
    if !ours || status.is_final() || (write.started && status != Status::Queued) {
        return Ok(None);
    }
    if write.started {
        database.user(scope, sql::START_RESPONSE, &[&stem.as_str(), &id, &&process[..]])?.run()?;
    }
    let Some(end) = write.end.as_deref() else { return Ok(Some(None)) };
    end_response(database, scope, stem, id, end)?;
    database.user(scope, sql::END_ITEMS, &[&place, &end.output.raw().text()])?.run()?;
    let Some(conversation) = conversation else { return Ok(Some(None)) };
    let input = database
        .user(scope, sql::INPUT, &[&place])?
        .first(|row| Ok(rows::json(text(row, 0)?)))?
        .unwrap_or_else(|| rows::json(rows::NO_ITEMS));
    Ok(Some(Some(Talk { id: conversation, input })))
}

fn end_response(database: Database<'_>, scope: &Scope, stem: Stem, id: &str, end: &Ending) -> Result<(), Failure> {
    let columns = Told::new(Some(end))?;
    let ended_at = columns.completed_at;
    database
        .user(
            scope,
            sql::END_RESPONSE,
            &[
                &stem.as_str(),
                &id,
                &end.told.status.name(),
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

/// The columns that tell how a response ended.
#[derive(Default)]
struct Told<'a> {
    completed_at: Option<i64>,
    error: Option<Json>,
    incomplete_reason: Option<&'a str>,
    usage: Option<Json>,
    upstream: Option<Json>,
    provenance: Option<Json>,
}

impl<'a> Told<'a> {
    fn new(end: Option<&'a Ending>) -> Result<Self, Failure> {
        let Some(Ending { told, upstream, .. }) = end else { return Ok(Self::default()) };
        Ok(Self {
            completed_at: optional_int(told.completed_at_ms)?,
            error: told.error.as_ref().map(amalgam_protocol::ErrorObject::to_json),
            incomplete_reason: told.incomplete_reason.as_deref(),
            usage: told.usage.as_ref().map(rows::usage_json),
            upstream: upstream.as_ref().map(UpstreamMemory::to_json),
            provenance: Some(told.provenance.to_json()),
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

/// Adds what a turn had said when it was cancelled from outside.
fn complete_cancelled(transaction: &Transaction<'_>, scope: &Scope, lost: &TurnWrite) -> Result<(), Failure> {
    let id = lost.response_id.as_str();
    let (Some(stem), Some(end)) = (Stem::of(id), &lost.end) else { return Ok(()) };
    let database = transaction.database;
    let columns = Told::new(Some(end))?;
    let told: Params<'_> = &[&stem.as_str(), &id, &columns.usage(), &columns.provenance()];
    let completed = database.user(scope, sql::COMPLETE_CANCELLED, told)?.run()?;
    let place = database.user(scope, sql::HEAD, &[&stem.as_str(), &id])?.first(|row| Ok(row.get::<_, i64>(2)?))?;
    if let (1.., Some(place)) = (completed, place) {
        database.user(scope, sql::END_ITEMS, &[&place, &end.output.raw().text()])?.run()?;
        transaction.notify(id);
    }
    Ok(())
}

fn add_events(database: Database<'_>, scope: &Scope, id: &str, events: &EventChunk) -> Result<(), Failure> {
    let (first, last) = (int(events.first)?, int(events.last)?);
    database.user(scope, sql::ADD_EVENTS, &[&id, &first, &last, &&events.frames[..]])?.run()?;
    Ok(())
}
