//! Writes of turns that waited together, in one transaction and one way to the server.
//!
//! Each write begins with a statement that holds the response: it changes the row if the response is this process's and
//! has not ended, and leaves the write's mark there. Everything else of the write happens only where that mark is, so a
//! write that has lost its response writes nothing, without anybody having to wait and see.

use amalgam_core::store::{Answer, EventChunk, Keyed, Transcript, Written};
use amalgam_protocol::{Json, Status};
use tokio_postgres::{Row, Statement};

use super::{
    connection::{Connection, Failure, FailureKind, Param},
    job::{Job, process_bytes, signed},
    pipeline::Pipeline,
    sql::{Sql, statements},
};
use crate::rows::{self, items_with_ids};

statements! {
    /// The items take the place behind their parent's, or begin a run of their own if that is taken; then the head. Nobody
    /// deletes the parent meanwhile; where it is gone nothing is written.
    Caller BEGIN = "
        WITH parent AS (
            SELECT 1 FROM items
            WHERE tenant_id = $1 AND user_id = $2 AND chain = $5::text AND position = $6::bigint AND NOT gone
            FOR KEY SHARE
        ), place AS (
            INSERT INTO items (chain, position, tenant_id, user_id, response_id, input, output)
            SELECT COALESCE($5, $4::text), COALESCE($6 + 1, 0), $1, $2, $4, $20::text, $21::text
            WHERE $5 IS NULL OR EXISTS (SELECT FROM parent)
            ON CONFLICT (chain, position) DO NOTHING
            RETURNING chain, position
        ), fork AS (
            INSERT INTO items (chain, position, tenant_id, user_id, response_id, input, output, parent_chain, parent_position)
            SELECT $4, 0, $1, $2, $4, $20, $21, $5, $6
            WHERE NOT EXISTS (SELECT FROM place) AND EXISTS (SELECT FROM parent)
            RETURNING chain, position
        )
        INSERT INTO responses (tenant_id, user_id, stem, id, chain, position, status, background, streamed, created_at,
            completed_at, ended_at, error, incomplete_reason, usage, settings, conversation_id, process, request, mark)
        SELECT $1, $2, $3, $4, chain, position, $7, $8, $9, $10, $11, $11, $12, $13, $14, $15, $16, $17, $18, $19
        FROM (SELECT chain, position FROM place UNION ALL SELECT chain, position FROM fork) AS taken
        RETURNING 1";
    /// It runs from now on, here. One that waits is whoever's starts it, and it starts once.
    Caller START = "
        UPDATE responses SET status = 'in_progress', process = $6, mark = $5
        WHERE tenant_id = $1 AND user_id = $2 AND stem = $3 AND id = $4
            AND status = 'queued' AND (process = $6 OR process IS NULL)
        RETURNING 1";
    /// Nothing about the response itself changes.
    Caller HOLD = "
        UPDATE responses SET mark = $5
        WHERE tenant_id = $1 AND user_id = $2 AND stem = $3 AND id = $4
            AND process = $6 AND status IN ('queued', 'in_progress')
        RETURNING 1";
    /// It ends. Its input comes back only for a conversation.
    Caller END = "
        WITH held AS (
            UPDATE responses SET status = $7, completed_at = $8, ended_at = $8, error = $9, incomplete_reason = $10,
                usage = $11, process = NULL, request = NULL, mark = $5
            WHERE tenant_id = $1 AND user_id = $2 AND stem = $3 AND id = $4
                AND CASE WHEN $13 THEN status = 'queued' AND (process = $6 OR process IS NULL)
                    ELSE status IN ('queued', 'in_progress') AND process = $6 END
            RETURNING chain, position, conversation_id
        )
        UPDATE items SET output = $12 FROM held
        WHERE items.chain = held.chain AND items.position = held.position
            AND items.tenant_id = $1 AND items.user_id = $2
        RETURNING held.conversation_id, CASE WHEN held.conversation_id IS NOT NULL THEN items.input END";
    /// Events and nothing else: the row is locked, so that nobody ends the response meanwhile, but not changed.
    Caller ONLY_EVENTS = "
        INSERT INTO stream_events (tenant_id, user_id, response_id, first, last, frames)
        SELECT $1, $2, $4, $6::bigint, $7::bigint, $8::bytea FROM responses
        WHERE tenant_id = $1 AND user_id = $2 AND stem = $3 AND id = $4
            AND process = $5 AND status IN ('queued', 'in_progress')
        FOR SHARE
        RETURNING 1";
    Caller EVENTS = "
        INSERT INTO stream_events (tenant_id, user_id, response_id, first, last, frames)
        SELECT $1, $2, $4, $6::bigint, $7::bigint, $8::bytea FROM responses
        WHERE tenant_id = $1 AND user_id = $2 AND stem = $3 AND id = $4 AND mark = $5";
    Caller TRANSCRIPT = "
        INSERT INTO transcripts (tenant_id, user_id, response_id, number, upstream, model, asked_at, first_token_ms,
            duration_ms, retries, request, response, cut, usage, losses, error, base_response, base_number, base_shared)
        SELECT $1, $2, $4, $6::bigint, $7::text, $8::text, $9::bigint, $10::bigint, $11::bigint, $12::bigint,
            $13::bytea, $14::bytea, $15::boolean, $16::text, $17::text, $18::text,
            $19::text, $20::bigint, $21::bigint
        FROM responses
        WHERE tenant_id = $1 AND user_id = $2 AND stem = $3 AND id = $4 AND mark = $5";
    Caller ANSWER = "
        UPDATE idempotency SET process = NULL, status = $8, content_type = $9, body = $10
        WHERE tenant_id = $1 AND user_id = $2 AND route = $6 AND key = $7 AND response_id = $4
            AND process IS NOT NULL
            AND EXISTS (SELECT FROM responses
                WHERE tenant_id = $1 AND user_id = $2 AND stem = $3 AND id = $4 AND mark = $5)";
    Caller GIVE_BACK = "
        DELETE FROM idempotency
        WHERE tenant_id = $1 AND user_id = $2 AND route = $6 AND key = $7 AND response_id = $4
            AND process IS NOT NULL
            AND EXISTS (SELECT FROM responses
                WHERE tenant_id = $1 AND user_id = $2 AND stem = $3 AND id = $4 AND mark = $5)";
    /// Items at the end of a conversation that is still there. One that it has already stays where it is.
    Caller APPEND = "
        WITH conversation AS (
            UPDATE conversations SET next_position = next_position + cardinality($4::text[])
            WHERE tenant_id = $1 AND user_id = $2 AND id = $3
            RETURNING next_position - cardinality($4::text[]) AS base
        )
        INSERT INTO conversation_items (tenant_id, user_id, conversation_id, position, id, item)
        SELECT $1, $2, $3, conversation.base + added.number - 1, added.id, added.item
        FROM conversation, unnest($4::text[], $5::text[]) WITH ORDINALITY AS added (id, item, number)
        ON CONFLICT DO NOTHING";
    Operator NOTIFY = "SELECT pg_notify('amalgam_changed', changed.id) FROM unnest($1::text[]) AS changed (id)";
    /// What can be known of a write whose answer was lost.
    Caller FIND_WRITE = "
        SELECT mark,
            EXISTS (SELECT FROM stream_events
                WHERE tenant_id = $1 AND user_id = $2 AND response_id = $4 AND last = $5 AND first = $6)
        FROM responses WHERE tenant_id = $1 AND user_id = $2 AND stem = $3 AND id = $4";
}

/// Runs the writes, all in one transaction. After a failure none of them happened, unless it is [`FailureKind::Cut`].
pub(super) async fn run(connection: &Connection, jobs: &[Job]) -> Result<Vec<Written>, Failure> {
    for sql in jobs.iter().flat_map(needed).chain([&APPEND, &NOTIFY]) {
        connection.prepared(sql).await?;
    }
    // Only its row knows whether a response that ends belongs to a conversation; one that begins says so.
    let look = jobs.iter().any(|job| job.write.begin.is_none() && job.write.end.is_some());
    let appended = appended_at_once(jobs);
    let changed = changed(jobs);
    let single = jobs.iter().flat_map(needed).count() == 1 && !look && appended.is_empty() && changed.is_empty();

    let mut line = Line { connection, pipeline: Pipeline::default() };
    if !single {
        line.simple("BEGIN");
    }
    let held_at = line.pipeline.len();
    jobs.iter().for_each(|job| line.hold(job));
    jobs.iter().for_each(|job| line.rest(job));
    if !look {
        line.finish(appended, changed, single);
        let answers = line.pipeline.run().await?;
        return Ok(written(answers.get(held_at..).unwrap_or_default(), jobs));
    }

    let begun = match line.pipeline.run().await {
        Ok(answers) => answers,
        Err(failure) => {
            if failure.kind() != FailureKind::Cut {
                connection.client().batch_execute("ROLLBACK").await?;
            }
            return Err(failure);
        }
    };
    let held = begun.get(held_at..).unwrap_or_default();
    let mut line = Line { connection, pipeline: Pipeline::default() };
    let ended = held.iter().zip(jobs).filter_map(|(rows, job)| appended_at_end(rows.first()?, job));
    line.finish(appended.into_iter().chain(ended).collect(), changed, false);
    line.pipeline.run().await?;
    Ok(written(held, jobs))
}

/// Whether a write whose answer was lost has happened.
pub(super) async fn has_happened(connection: &Connection, job: &Job) -> Result<bool, Failure> {
    let (last, first) = match &job.write.events {
        Some(events) => (Some(signed(events.last)), Some(signed(events.first))),
        None => (None, None),
    };
    let key = Key::of(job);
    let found = connection.row(&FIND_WRITE, &[&key.tenant_id, &key.user, &key.stem, &key.id, &last, &first]).await?;
    let Some(row) = found else { return Ok(false) };
    let has_mark = row.try_get::<_, i64>(0)? == job.mark;
    // Whoever else has touched the row since has seen it: what began is there.
    Ok(has_mark || job.write.begin.is_some() || job.is_events_only() && row.try_get(1)?)
}

/// A row that came back for the statement that holds the response says that the write is this process's to make.
fn written(held: &[Vec<Row>], jobs: &[Job]) -> Vec<Written> {
    let kept = |rows: &Vec<Row>| if rows.is_empty() { Written::Lost } else { Written::Kept };
    held.iter().map(kept).take(jobs.len()).collect()
}

/// Whom to wake in other processes.
fn changed(jobs: &[Job]) -> Vec<&str> {
    let mut ids: Vec<&str> =
        jobs.iter().filter(|job| job.is_awaited()).map(|job| job.write.response_id.as_str()).collect();
    if jobs.iter().any(Job::is_queued) {
        ids.push("");
    }
    ids
}

/// Items that go to a conversation.
struct Appended<'a> {
    tenant_id: i64,
    user: &'a str,
    conversation: String,
    ids: Vec<String>,
    items: Vec<Json>,
}

impl<'a> Appended<'a> {
    /// What a turn adds, if it ended well enough.
    fn new(job: &'a Job, conversation: &str, input: &Json) -> Option<Self> {
        let end = job.write.end.as_ref()?;
        if !matches!(end.told.status, Status::Completed | Status::Incomplete) {
            return None;
        }
        let added = items_with_ids(input).chain(items_with_ids(&end.output));
        let (ids, items): (Vec<_>, Vec<_>) = added.map(|added| (added.id, added.item)).unzip();
        let (tenant_id, user) = (job.scope.tenant_id(), job.scope.user());
        (!ids.is_empty()).then(|| Self { tenant_id, user, conversation: conversation.to_owned(), ids, items })
    }
}

fn appended_at_once<'a>(jobs: &'a [Job]) -> Vec<Appended<'a>> {
    let appended = |job: &'a Job| {
        let begin = job.write.begin.as_ref()?;
        Appended::new(job, begin.conversation.as_deref()?, &begin.input)
    };
    jobs.iter().filter_map(appended).collect()
}

fn appended_at_end<'a>(row: &Row, job: &'a Job) -> Option<Appended<'a>> {
    if job.write.begin.is_some() || job.write.end.is_none() {
        return None;
    }
    let conversation: &str = row.try_get(0).ok()?;
    let input: &str = row.try_get(1).ok()?;
    Appended::new(job, conversation, &rows::json(input))
}

/// The columns that say which response it is.
struct Key<'a> {
    tenant_id: i64,
    user: &'a str,
    stem: &'a str,
    id: &'a str,
}

impl<'a> Key<'a> {
    fn of(job: &'a Job) -> Self {
        let (tenant_id, user) = (job.scope.tenant_id(), job.scope.user());
        Self { tenant_id, user, stem: job.stem.as_str(), id: &job.write.response_id }
    }
}

/// The statement that holds a response.
fn holding(job: &Job) -> &'static Sql {
    match &job.write {
        write if write.begin.is_some() => &BEGIN,
        write if write.end.is_some() => &END,
        write if write.started => &START,
        _ if job.is_events_only() => &ONLY_EVENTS,
        _ => &HOLD,
    }
}

/// Every statement of a write, as often as it comes.
fn needed(job: &Job) -> impl Iterator<Item = &'static Sql> {
    let events = (job.write.events.is_some() && !job.is_events_only()).then_some(&EVENTS);
    let answer = job.write.answer.as_ref().map(|(_, answer)| if answer.is_some() { &ANSWER } else { &GIVE_BACK });
    let transcripts = job.write.transcripts.iter().map(|_| &TRANSCRIPT);
    [holding(job)].into_iter().chain(events).chain(transcripts).chain(answer)
}

/// Statements on their way.
struct Line<'a> {
    connection: &'a Connection,
    pipeline: Pipeline<'a>,
}

impl<'a> Line<'a> {
    fn simple(&mut self, text: &'static str) {
        let client = self.connection.client();
        self.pipeline.push(async move { client.batch_execute(text).await.map(|()| Vec::new()) });
    }

    fn statement(&self, sql: &'static Sql) -> Statement {
        self.connection.known(sql).expect("everything that is needed was prepared")
    }

    fn hold(&mut self, job: &'a Job) {
        let client = self.connection.client();
        let statement = self.statement(holding(job));
        self.pipeline.push(async move {
            let Key { tenant_id, user, stem, id } = Key::of(job);
            let process = process_bytes(job.write.process);
            let process = process.as_slice();
            let told = Told::of(job);
            if let Some(begin) = &job.write.begin {
                let (chain, position) = match &begin.parent {
                    Some(parent) => (Some(parent.chain.as_str()), Some(signed(parent.position))),
                    None => (None, None),
                };
                let runs = job.write.end.is_none();
                let status = if job.write.started { Status::InProgress } else { begin.status };
                let status = told.status.unwrap_or(status.name());
                // A turn that waits is nobody's until somebody takes or starts it.
                let owner = (runs && !job.is_queued()).then_some(process);
                let created_at = signed(begin.created_at_ms);
                let params: [Param<'_>; 21] = [
                    &tenant_id,
                    &user,
                    &stem,
                    &id,
                    &chain,
                    &position,
                    &status,
                    &begin.background,
                    &begin.streamed,
                    &created_at,
                    &told.completed_at,
                    &told.error,
                    &told.incomplete_reason,
                    &told.usage,
                    &begin.settings.as_ref(),
                    &begin.conversation,
                    &owner,
                    &begin.request.as_deref().filter(|_| runs),
                    &job.mark,
                    &begin.input.raw().text(),
                    &told.output,
                ];
                return client.query(&statement, &params).await;
            }
            if job.write.end.is_some() {
                let params: [Param<'_>; 13] = [
                    &tenant_id,
                    &user,
                    &stem,
                    &id,
                    &job.mark,
                    &process,
                    &told.status,
                    &told.completed_at,
                    &told.error,
                    &told.incomplete_reason,
                    &told.usage,
                    &told.output,
                    &job.write.started,
                ];
                return client.query(&statement, &params).await;
            }
            if let (Some(events), true) = (&job.write.events, job.is_events_only()) {
                let (first, last) = (signed(events.first), signed(events.last));
                let params: [Param<'_>; 8] =
                    [&tenant_id, &user, &stem, &id, &process, &first, &last, &events.frames.as_ref()];
                return client.query(&statement, &params).await;
            }
            client.query(&statement, &[&tenant_id, &user, &stem, &id, &job.mark, &process]).await
        });
    }

    /// What a write does beside holding its response.
    fn rest(&mut self, job: &'a Job) {
        if let Some(events) = job.write.events.as_ref().filter(|_| !job.is_events_only()) {
            self.events(job, events);
        }
        for transcript in &job.write.transcripts {
            self.transcript(job, transcript);
        }
        if let Some((keyed, answer)) = &job.write.answer {
            self.answer(job, keyed, answer.as_ref());
        }
    }

    fn events(&mut self, job: &'a Job, events: &'a EventChunk) {
        let client = self.connection.client();
        let statement = self.statement(&EVENTS);
        self.pipeline.push(async move {
            let Key { tenant_id, user, stem, id } = Key::of(job);
            let (first, last) = (signed(events.first), signed(events.last));
            let params: [Param<'_>; 8] =
                [&tenant_id, &user, &stem, &id, &job.mark, &first, &last, &events.frames.as_ref()];
            client.query(&statement, &params).await
        });
    }

    fn transcript(&mut self, job: &'a Job, call: &'a Transcript) {
        let client = self.connection.client();
        let statement = self.statement(&TRANSCRIPT);
        self.pipeline.push(async move {
            let Key { tenant_id, user, stem, id } = Key::of(job);
            let losses = rows::losses_json(&call.losses);
            let base = call.base.as_ref();
            let params: [Param<'_>; 21] = [
                &tenant_id,
                &user,
                &stem,
                &id,
                &job.mark,
                &i64::from(call.number),
                &call.upstream,
                &call.model,
                &signed(call.asked_at_ms),
                &call.first_token_ms.map(signed),
                &signed(call.duration_ms),
                &i64::from(call.retries),
                &call.request.as_ref(),
                &call.response.as_ref(),
                &call.cut,
                &call.usage.as_ref().map(text_of),
                &losses.as_ref().map(text_of),
                &call.error,
                &base.map(|base| base.response_id.as_str()),
                &base.map(|base| i64::from(base.number)),
                &base.map(|base| signed(base.shared)),
            ];
            client.query(&statement, &params).await
        });
    }

    fn answer(&mut self, job: &'a Job, keyed: &'a Keyed, answer: Option<&'a Answer>) {
        let client = self.connection.client();
        let statement = self.statement(if answer.is_some() { &ANSWER } else { &GIVE_BACK });
        self.pipeline.push(async move {
            let Key { tenant_id, user, stem, id } = Key::of(job);
            let mut params: Vec<Param<'_>> = vec![&tenant_id, &user, &stem, &id, &job.mark, &keyed.route, &keyed.key];
            let (status, content_type, body) = answer.map(answer_columns).unwrap_or_default();
            if answer.is_some() {
                params.extend([&status as Param<'_>, &content_type, &body]);
            }
            client.query(&statement, &params).await
        });
    }

    /// Conversations in their order, so that nobody waits in a circle; who is to be woken; the end.
    fn finish(&mut self, mut appended: Vec<Appended<'a>>, changed: Vec<&'a str>, single: bool) {
        let client = self.connection.client();
        appended.sort_by(|one, other| one.conversation.cmp(&other.conversation));
        for added in appended {
            let statement = self.statement(&APPEND);
            self.pipeline.push(async move {
                let items: Vec<&str> = added.items.iter().map(text_of).collect();
                let params: [Param<'_>; 5] = [&added.tenant_id, &added.user, &added.conversation, &added.ids, &items];
                client.query(&statement, &params).await
            });
        }
        if !changed.is_empty() {
            let statement = self.statement(&NOTIFY);
            self.pipeline.push(async move { client.query(&statement, &[&changed]).await });
        }
        if !single {
            self.simple("COMMIT");
        }
    }
}

/// The columns of an ending; empty ones for a response that runs.
#[derive(Default)]
struct Told<'a> {
    status: Option<&'static str>,
    completed_at: Option<i64>,
    error: Option<String>,
    incomplete_reason: Option<&'a str>,
    usage: Option<String>,
    output: Option<&'a str>,
}

impl<'a> Told<'a> {
    fn of(job: &'a Job) -> Self {
        let Some(end) = &job.write.end else { return Self::default() };
        Self {
            status: Some(end.told.status.name()),
            completed_at: end.told.completed_at_ms.map(signed),
            error: end.told.error.as_ref().map(|error| text_of(&error.to_json()).to_owned()),
            incomplete_reason: end.told.incomplete_reason.as_deref(),
            usage: end.told.usage.as_ref().map(|usage| text_of(&rows::usage_json(usage)).to_owned()),
            output: Some(text_of(&end.output)),
        }
    }
}

/// Status, content type and body of an answer; nothing of them when the answer is the stored response.
pub(super) fn answer_columns(answer: &Answer) -> (Option<i32>, Option<&str>, Option<&[u8]>) {
    match answer {
        Answer::Stored => (None, None, None),
        Answer::Body { status, content_type, body } => (Some(i32::from(*status)), Some(content_type), Some(body)),
    }
}

fn text_of(json: &Json) -> &str {
    json.raw().text()
}
