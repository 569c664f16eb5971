//! Writes of turns that waited together, in one transaction and one round trip to the server.
//!
//! Each write begins with a statement that locks the response: it changes the row if this process owns the response and
//! it has not ended, and puts the write's mark there. All other statements of the write have an effect only where that
//! mark is, so a write that has lost its response writes nothing, without waiting for the results of other statements.

pub(super) mod columns;
mod conversation_items;
mod settlements;

use std::{borrow::Cow, collections::HashSet};

use amalgam_core::{
    RawAnswer,
    store::{Answer, EventChunk, IdempotencyKey, WriteOutcome},
};
use amalgam_store::{rows::process_bytes, sql::Sql, statements};
use tokio_postgres::{Row, Statement};

use self::{
    columns::{EndColumns, Key, text_of},
    conversation_items::{AppendedItems, appended_at_end, appended_at_once},
};
use super::{
    connection::{Connection, FailureKind, Param, PostgresFailure},
    job::{Job, signed},
    journal,
    pipeline::Pipeline,
    session_queue, turn_list,
};

statements! {
    /// New responses. The items of each take the position after their parent's, or begin a run of their own if that is
    /// taken; then the head is inserted. The parent is locked against deletion meanwhile; without a parent nothing is
    /// written.
    UserSql BEGIN = "
        WITH new AS (
            SELECT * FROM unnest($1::bigint[], $2::text[], $3::text[], $4::text[], $5::text[], $6::bigint[], $7::text[],
                $8::boolean[], $9::boolean[], $10::bigint[], $11::bigint[], $12::text[], $13::text[], $14::text[],
                $15::bytea[], $16::text[], $17::bytea[], $18::bytea[], $19::bigint[], $20::text[], $21::text[],
                $22::text[], $23::text[])
            AS new (tenant_id, user_id, stem, id, parent_chain, parent_position, status, background, streamed,
                created_at, completed_at, error, incomplete_reason, usage, settings, conversation_id, process, request,
                mark, input, output, upstream, provenance)
        ), parent AS (
            SELECT new.id FROM new JOIN items ON items.tenant_id = new.tenant_id AND items.user_id = new.user_id
                AND items.chain = new.parent_chain AND items.position = new.parent_position AND NOT items.gone
            FOR KEY SHARE OF items
        ), place AS (
            INSERT INTO items (chain, position, tenant_id, user_id, response_id, input, output)
            SELECT COALESCE(parent_chain, id), COALESCE(parent_position + 1, 0), tenant_id, user_id, id, input, output
            FROM new WHERE parent_chain IS NULL OR id IN (SELECT id FROM parent)
            ON CONFLICT (chain, position) DO NOTHING
            RETURNING response_id, chain, position
        ), fork AS (
            INSERT INTO items (chain, position, tenant_id, user_id, response_id, input, output, parent_chain,
                parent_position)
            SELECT id, 0, tenant_id, user_id, id, input, output, parent_chain, parent_position
            FROM new WHERE id IN (SELECT id FROM parent) AND id NOT IN (SELECT response_id FROM place)
            RETURNING response_id, chain, position
        )
        INSERT INTO responses (tenant_id, user_id, stem, id, chain, position, status, background, streamed, created_at,
            completed_at, ended_at, error, incomplete_reason, usage, settings, conversation_id, process, request, mark,
            upstream, provenance)
        SELECT tenant_id, user_id, stem, id, taken.chain, taken.position, status, background, streamed, created_at,
            completed_at, completed_at, error, incomplete_reason, usage, settings, conversation_id, process, request, mark,
            upstream, provenance
        FROM new JOIN (SELECT * FROM place UNION ALL SELECT * FROM fork) AS taken ON taken.response_id = new.id
        RETURNING id";
    /// Starts queued turns in this process. A queued turn belongs to the process that starts it, and it starts once.
    UserSql START = "
        UPDATE responses SET status = 'in_progress', process = $6, mark = $5
        WHERE tenant_id = $1 AND user_id = $2 AND stem = $3 AND id = $4
            AND status = 'queued' AND (process = $6 OR process IS NULL)
        RETURNING 1";
    /// Locks responses without changing them.
    UserSql HOLD = "
        UPDATE responses SET mark = $5
        WHERE tenant_id = $1 AND user_id = $2 AND stem = $3 AND id = $4
            AND process = $6 AND status IN ('queued', 'in_progress')
        RETURNING 1";
    /// Ends responses. Returns the input only for a conversation.
    UserSql END = "
        WITH held AS (
            UPDATE responses SET status = $7, completed_at = $8, ended_at = $8, error = $9, incomplete_reason = $10,
                usage = $11, upstream = $14, provenance = $15, process = NULL, request = NULL, mark = $5
            WHERE tenant_id = $1 AND user_id = $2 AND stem = $3 AND id = $4
                AND CASE WHEN $13 THEN status = 'queued' AND (process = $6 OR process IS NULL)
                    ELSE status IN ('queued', 'in_progress') AND process = $6 END
            RETURNING chain, position, conversation_id
        )
        UPDATE items SET output = $12 FROM held
        WHERE items.chain = held.chain AND items.position = held.position
            AND items.tenant_id = $1 AND items.user_id = $2
        RETURNING held.conversation_id, CASE WHEN held.conversation_id IS NOT NULL THEN items.input END";
    /// For writes that only add events: locks the rows, so that no other process ends the responses meanwhile, without
    /// changing them.
    UserSql ONLY_EVENTS = "
        INSERT INTO stream_events (tenant_id, user_id, response_id, first, last, frames)
        SELECT new.tenant_id, new.user_id, new.id, new.first, new.last, new.frames
        FROM unnest($1::bigint[], $2::text[], $3::text[], $4::text[], $5::bytea[], $6::bigint[], $7::bigint[],
                $8::bytea[]) AS new (tenant_id, user_id, stem, id, process, first, last, frames)
            JOIN responses ON responses.tenant_id = new.tenant_id AND responses.stem = new.stem AND responses.id = new.id
                AND responses.user_id = new.user_id AND responses.process = new.process
                AND responses.status IN ('queued', 'in_progress')
        FOR SHARE OF responses
        RETURNING response_id";
    UserSql EVENTS = "
        INSERT INTO stream_events (tenant_id, user_id, response_id, first, last, frames)
        SELECT $1, $2, $4, $6::bigint, $7::bigint, $8::bytea FROM responses
        WHERE tenant_id = $1 AND user_id = $2 AND stem = $3 AND id = $4 AND mark = $5";
    UserSql TRANSCRIPTS = "
        INSERT INTO transcripts (tenant_id, user_id, response_id, number, upstream, model, asked_at, first_token_ms,
            duration_ms, retries, request, response, cut, usage, losses, error, base_response, base_number, base_shared)
        SELECT new.tenant_id, new.user_id, new.id, new.number, new.upstream, new.model, new.asked_at, new.first_token_ms,
            new.duration_ms, new.retries, new.request, new.response, new.cut, new.usage, new.losses, new.error,
            new.base_response, new.base_number, new.base_shared
        FROM unnest($1::bigint[], $2::text[], $3::text[], $4::text[], $5::bigint[], $6::bigint[], $7::text[],
                $8::text[], $9::bigint[], $10::bigint[], $11::bigint[], $12::bigint[], $13::bytea[], $14::bytea[],
                $15::boolean[], $16::text[], $17::text[], $18::text[], $19::text[], $20::bigint[], $21::bigint[])
            AS new (tenant_id, user_id, stem, id, mark, number, upstream, model, asked_at, first_token_ms, duration_ms,
                retries, request, response, cut, usage, losses, error, base_response, base_number, base_shared)
            JOIN responses ON responses.tenant_id = new.tenant_id AND responses.stem = new.stem AND responses.id = new.id
                AND responses.user_id = new.user_id AND responses.mark = new.mark";
    /// The output of a turn that was cancelled by another request, unless it is stored.
    UserSql COMPLETE_CANCELLED = "
        WITH completed AS (
            UPDATE responses SET usage = $5, provenance = $6
            WHERE tenant_id = $1 AND user_id = $2 AND stem = $3 AND id = $4 AND status = 'cancelled'
                AND provenance IS NULL
            RETURNING id, chain, position
        ), appended AS (
            UPDATE items SET output = $7 FROM completed
            WHERE items.chain = completed.chain AND items.position = completed.position
                AND items.tenant_id = $1 AND items.user_id = $2
        )
        SELECT pg_notify('amalgam_changed', id)::text FROM completed";
    /// The model calls of responses that have ended without them.
    UserSql LATE_TRANSCRIPTS = "
        INSERT INTO transcripts (tenant_id, user_id, response_id, number, upstream, model, asked_at, first_token_ms,
            duration_ms, retries, request, response, cut, usage, losses, error, base_response, base_number, base_shared)
        SELECT new.tenant_id, new.user_id, new.id, new.number, new.upstream, new.model, new.asked_at, new.first_token_ms,
            new.duration_ms, new.retries, new.request, new.response, new.cut, new.usage, new.losses, new.error,
            new.base_response, new.base_number, new.base_shared
        FROM unnest($1::bigint[], $2::text[], $3::text[], $4::text[], $5::bigint[], $6::bigint[], $7::text[],
                $8::text[], $9::bigint[], $10::bigint[], $11::bigint[], $12::bigint[], $13::bytea[], $14::bytea[],
                $15::boolean[], $16::text[], $17::text[], $18::text[], $19::text[], $20::bigint[], $21::bigint[])
            AS new (tenant_id, user_id, stem, id, mark, number, upstream, model, asked_at, first_token_ms, duration_ms,
                retries, request, response, cut, usage, losses, error, base_response, base_number, base_shared)
            JOIN responses ON responses.tenant_id = new.tenant_id AND responses.stem = new.stem AND responses.id = new.id
                AND responses.user_id = new.user_id AND responses.status NOT IN ('queued', 'in_progress')
        WHERE NOT EXISTS (SELECT FROM transcripts known
            WHERE known.tenant_id = new.tenant_id AND known.response_id = new.id)
        FOR KEY SHARE OF responses";
    UserSql ANSWER = "
        UPDATE idempotency SET process = NULL, status = $8, content_type = $9, body = $10
        WHERE tenant_id = $1 AND user_id = $2 AND route = $6 AND key = $7 AND response_id = $4
            AND process IS NOT NULL
            AND EXISTS (SELECT FROM responses
                WHERE tenant_id = $1 AND user_id = $2 AND stem = $3 AND id = $4 AND mark = $5)";
    UserSql GIVE_BACK = "
        DELETE FROM idempotency
        WHERE tenant_id = $1 AND user_id = $2 AND route = $6 AND key = $7 AND response_id = $4
            AND process IS NOT NULL
            AND EXISTS (SELECT FROM responses
                WHERE tenant_id = $1 AND user_id = $2 AND stem = $3 AND id = $4 AND mark = $5)";
    /// The upstream's last answer, for a response that this write has ended.
    UserSql KEEP_RAW_ANSWER = "
        UPDATE responses SET raw_answer = $6
        WHERE tenant_id = $1 AND user_id = $2 AND stem = $3 AND id = $4 AND mark = $5";
    /// Appends items to a conversation that still exists. An item that it already has keeps its position.
    UserSql APPEND = "
        WITH conversation AS (
            UPDATE conversations SET next_position = next_position + cardinality($4::text[])
            WHERE tenant_id = $1 AND user_id = $2 AND id = $3
            RETURNING next_position - cardinality($4::text[]) AS base
        )
        INSERT INTO conversation_items (tenant_id, user_id, conversation_id, position, id, item)
        SELECT $1, $2, $3, conversation.base + added.number - 1, added.id, added.item
        FROM conversation, unnest($4::text[], $5::text[]) WITH ORDINALITY AS added (id, item, number)
        ON CONFLICT DO NOTHING";
    OperatorSql NOTIFY = "SELECT pg_notify('amalgam_changed', changed.id) FROM unnest($1::text[]) AS changed (id)";
    /// Finds a write whose result was lost.
    UserSql FIND_WRITE = "
        SELECT mark,
            EXISTS (SELECT FROM stream_events
                WHERE tenant_id = $1 AND user_id = $2 AND response_id = $4 AND last = $5 AND first = $6)
        FROM responses WHERE tenant_id = $1 AND user_id = $2 AND stem = $3 AND id = $4";
}

/// Runs the writes, all in one transaction; each is for another response. After a failure none of them was committed,
/// unless it is [`FailureKind::Disconnected`].
pub(super) async fn run(connection: &Connection, jobs: &[Job]) -> Result<Vec<WriteOutcome>, PostgresFailure> {
    let needed = needed(jobs);
    for sql in needed.iter().copied().chain([APPEND.into(), NOTIFY.into()]) {
        connection.prepared(sql).await?;
    }
    // Only its row says whether a response that ends belongs to a conversation; a new one has this in its write.
    let look = jobs.iter().any(|job| job.write.begin.is_none() && job.write.end.is_some())
        || jobs.iter().any(|job| !job.write.settlements.is_empty());
    let appended = appended_at_once(jobs);
    let changed = changed(jobs);
    let single = needed.len() == 1 && !look && appended.is_empty() && changed.is_empty();

    let mut batch = BatchPipeline { connection, pipeline: Pipeline::default() };
    if !single {
        batch.simple("BEGIN");
    }
    let held = batch.hold(jobs);
    batch.rest(jobs);
    if !look {
        batch.finish(appended, changed, single);
        let answers = batch.pipeline.run().await?;
        return held.written(&answers, jobs);
    }

    let held_and_settled = async {
        let answers = batch.pipeline.run().await?;
        let written = held.written(&answers, jobs)?;
        settlements::settle(connection, jobs, &written).await?;
        Ok::<_, PostgresFailure>((answers, written))
    };
    let (answers, written) = match held_and_settled.await {
        Ok(done) => done,
        Err(failure) => {
            if failure.kind() != FailureKind::Disconnected {
                connection.client().batch_execute("ROLLBACK").await?;
            }
            return Err(failure);
        }
    };
    let mut batch = BatchPipeline { connection, pipeline: Pipeline::default() };
    let ended = jobs.iter().zip(&held.each).filter_map(|(job, at)| appended_at_end(answers.get((*at)?)?.first()?, job));
    batch.finish(appended.into_iter().chain(ended).collect(), changed, false);
    batch.pipeline.run().await?;
    Ok(written)
}

/// Whether a write whose result was lost has been committed.
pub(super) async fn has_happened(connection: &Connection, job: &Job) -> Result<bool, PostgresFailure> {
    let (last, first) = match &job.write.events {
        Some(events) => (Some(signed(events.last)), Some(signed(events.first))),
        None => (None, None),
    };
    let key = Key::of(job);
    let found = connection.row(FIND_WRITE, &[&key.tenant_id, &key.user, &key.stem, &key.id, &last, &first]).await?;
    let Some(row) = found else { return Ok(false) };
    let has_mark = row.try_get::<_, i64>(0)? == job.mark;
    // A process that changed the row later has read it, so the beginning was committed.
    Ok(has_mark || job.write.begin.is_some() || job.is_events_only() && row.try_get(1)?)
}

/// Adds the data of a turn that was ended by another writer: its model calls and, if it was cancelled, its output.
pub(super) async fn add_unfinished(connection: &Connection, job: &Job) -> Result<(), PostgresFailure> {
    let statement = connection.prepared(LATE_TRANSCRIPTS).await?;
    columns::transcripts(connection.client(), &statement, std::slice::from_ref(job)).await?;
    if job.write.end.is_some() {
        let Key { tenant_id, user, stem, id } = Key::of(job);
        let end = EndColumns::of(job);
        let params: [Param<'_>; 7] = [&tenant_id, &user, &stem, &id, &end.usage, &end.provenance, &end.output];
        connection.rows(COMPLETE_CANCELLED, &params).await?;
    }
    if let Some(summary) = &job.write.summary {
        let statement = connection.prepared(turn_list::PUT_TURNS).await?;
        turn_list::put(connection.client(), &statement, &[(summary, None)]).await?;
    }
    Ok(())
}

/// The positions of the results that show which writes are not lost.
struct OutcomePositions {
    /// The ids of the written responses, for all writes that begin a response, and for all that only add events.
    together: Vec<usize>,
    /// A row for each other write that was not lost.
    each: Vec<Option<usize>>,
}

impl OutcomePositions {
    fn written(&self, answers: &[Vec<Row>], jobs: &[Job]) -> Result<Vec<WriteOutcome>, PostgresFailure> {
        let rows = |at: usize| answers.get(at).map(Vec::as_slice).unwrap_or_default();
        let ids = self.together.iter().flat_map(|at| rows(*at)).map(|row| row.try_get(0));
        let written: HashSet<&str> = ids.collect::<Result<_, _>>()?;
        let written = jobs.iter().zip(&self.each).map(|(job, at)| {
            let is_kept = match at {
                Some(at) => !rows(*at).is_empty(),
                None => written.contains(job.write.response_id.as_str()),
            };
            if is_kept { WriteOutcome::Kept } else { WriteOutcome::Lost }
        });
        Ok(written.collect())
    }
}

/// The topics to notify in other processes.
fn changed(jobs: &[Job]) -> Vec<Cow<'_, str>> {
    let awaited = jobs.iter().filter(|job| job.is_awaited()).map(|job| Cow::Borrowed(job.write.response_id.as_str()));
    let queued = jobs.iter().any(Job::is_queued).then_some(Cow::Borrowed(""));
    let sessions = jobs.iter().filter_map(Job::session_topic).map(Cow::Owned);
    awaited.chain(queued).chain(sessions).collect()
}

/// The statement that locks a response, and whether it locks many at once.
fn holding(job: &Job) -> (Sql, bool) {
    match &job.write {
        write if write.begin.is_some() => (BEGIN.into(), true),
        write if write.end.is_some() => (END.into(), false),
        write if write.started => (START.into(), false),
        _ if job.is_events_only() => (ONLY_EVENTS.into(), true),
        _ => (HOLD.into(), false),
    }
}

/// All statements that these writes need, each as often as it is needed.
fn needed(jobs: &[Job]) -> Vec<Sql> {
    let any = |is_so: fn(&Job) -> bool, sql: Sql| jobs.iter().any(is_so).then_some(sql);
    let mut needed: Vec<Sql> = Vec::new();
    needed.extend(any(|job| job.write.begin.is_some(), BEGIN.into()));
    needed.extend(any(Job::is_events_only, ONLY_EVENTS.into()));
    needed.extend(any(|job| !job.write.transcripts.is_empty(), TRANSCRIPTS.into()));
    needed.extend(journal::needed(jobs));
    needed.extend(any(|job| job.write.summary.is_some(), turn_list::PUT_TURNS.into()));
    for job in jobs {
        let (sql, together) = holding(job);
        needed.extend((!together).then_some(sql));
        needed.extend((job.write.events.is_some() && !job.is_events_only()).then(|| Sql::from(EVENTS)));
        let answer = job.write.answer.as_ref().map(|(_, answer)| if answer.is_some() { ANSWER } else { GIVE_BACK });
        needed.extend(answer.map(Sql::from));
        needed.extend(session_queue::needed(job));
        needed.extend(job.write.raw_answer.is_some().then(|| Sql::from(KEEP_RAW_ANSWER)));
    }
    needed
}

/// The statements of a batch.
struct BatchPipeline<'a> {
    connection: &'a Connection,
    pipeline: Pipeline<'a>,
}

impl<'a> BatchPipeline<'a> {
    fn simple(&mut self, text: &'static str) {
        let client = self.connection.client();
        self.pipeline.push(async move { client.batch_execute(text).await.map(|()| Vec::new()) });
    }

    fn statement(&self, sql: impl Into<Sql>) -> Statement {
        self.connection.known(sql.into()).expect("everything that is needed was prepared")
    }

    /// Sends the statements that lock the responses.
    fn hold(&mut self, jobs: &'a [Job]) -> OutcomePositions {
        let client = self.connection.client();
        let mut together = Vec::new();
        let begin: Vec<&Job> = jobs.iter().filter(|job| job.write.begin.is_some()).collect();
        if !begin.is_empty() {
            let statement = self.statement(BEGIN);
            together.push(self.pipeline.push(async move { columns::begin(client, &statement, &begin).await }));
        }
        let with_events: Vec<&Job> = jobs.iter().filter(|job| job.is_events_only()).collect();
        if !with_events.is_empty() {
            let statement = self.statement(ONLY_EVENTS);
            together
                .push(self.pipeline.push(async move { columns::only_events(client, &statement, &with_events).await }));
        }
        let each = jobs.iter().map(|job| {
            let (sql, together) = holding(job);
            (!together).then(|| self.hold_one(job, sql))
        });
        OutcomePositions { each: each.collect(), together }
    }

    fn hold_one(&mut self, job: &'a Job, sql: Sql) -> usize {
        let client = self.connection.client();
        let statement = self.statement(sql);
        self.pipeline.push(async move {
            let Key { tenant_id, user, stem, id } = Key::of(job);
            let process = process_bytes(job.write.process);
            let process = process.as_slice();
            let mut params: Vec<Param<'_>> = vec![&tenant_id, &user, &stem, &id, &job.mark, &process];
            let end = EndColumns::of(job);
            if job.write.end.is_some() {
                let ending: [Param<'_>; 9] = [
                    &end.status,
                    &end.completed_at,
                    &end.error,
                    &end.incomplete_reason,
                    &end.usage,
                    &end.output,
                    &job.write.started,
                    &end.upstream,
                    &end.provenance,
                ];
                params.extend(ending);
            }
            client.query(&statement, &params).await
        })
    }

    /// Sends the other statements of the writes.
    fn rest(&mut self, jobs: &'a [Job]) {
        for job in jobs {
            if let Some(events) = job.write.events.as_ref().filter(|_| !job.is_events_only()) {
                self.events(job, events);
            }
            if let Some((idempotency_key, answer)) = &job.write.answer {
                self.answer(job, idempotency_key, answer.as_ref());
            }
            if let Some(answer) = &job.write.raw_answer {
                self.raw_answer(job, answer);
            }
        }
        self.session_ends(jobs);
        if jobs.iter().any(|job| !job.write.transcripts.is_empty()) {
            let client = self.connection.client();
            let statement = self.statement(TRANSCRIPTS);
            self.pipeline.push(async move { columns::transcripts(client, &statement, jobs).await });
        }
        for sql in journal::needed(jobs) {
            let client = self.connection.client();
            let statement = self.statement(sql);
            self.pipeline.push(async move { journal::add(client, sql, &statement, jobs).await });
        }
        let turns = turn_list::of(jobs);
        if !turns.is_empty() {
            let client = self.connection.client();
            let statement = self.statement(turn_list::PUT_TURNS);
            self.pipeline.push(async move { turn_list::put(client, &statement, &turns).await });
        }
    }

    /// Sends the messages that turns append to their sessions, in the order of sessions, so that two batches cannot
    /// deadlock.
    fn session_ends(&mut self, jobs: &'a [Job]) {
        let mut ends: Vec<_> = jobs
            .iter()
            .filter_map(|job| Some((job, job.write.session.as_deref()?, session_queue::needed(job)?)))
            .collect();
        ends.sort_by_key(|(_, end, _)| end.ticket.session_id);
        for (job, end, sql) in ends {
            let client = self.connection.client();
            let statement = self.statement(sql);
            self.pipeline.push(async move { session_queue::end(client, &statement, job, end).await });
        }
    }

    fn events(&mut self, job: &'a Job, events: &'a EventChunk) {
        let client = self.connection.client();
        let statement = self.statement(EVENTS);
        self.pipeline.push(async move {
            let Key { tenant_id, user, stem, id } = Key::of(job);
            let (first, last) = (signed(events.first), signed(events.last));
            let params: [Param<'_>; 8] =
                [&tenant_id, &user, &stem, &id, &job.mark, &first, &last, &events.frames.as_ref()];
            client.query(&statement, &params).await
        });
    }

    fn raw_answer(&mut self, job: &'a Job, answer: &'a RawAnswer) {
        let client = self.connection.client();
        let statement = self.statement(KEEP_RAW_ANSWER);
        self.pipeline.push(async move {
            let Key { tenant_id, user, stem, id } = Key::of(job);
            let answer = answer.to_json();
            let params: [Param<'_>; 6] = [&tenant_id, &user, &stem, &id, &job.mark, &text_of(&answer)];
            client.query(&statement, &params).await
        });
    }

    fn answer(&mut self, job: &'a Job, idempotency_key: &'a IdempotencyKey, answer: Option<&'a Answer>) {
        let client = self.connection.client();
        let statement = self.statement(if answer.is_some() { ANSWER } else { GIVE_BACK });
        self.pipeline.push(async move {
            let Key { tenant_id, user, stem, id } = Key::of(job);
            let mut params: Vec<Param<'_>> =
                vec![&tenant_id, &user, &stem, &id, &job.mark, &idempotency_key.route, &idempotency_key.key];
            let (status, content_type, body) = answer.map(answer_columns).unwrap_or_default();
            if answer.is_some() {
                params.extend([&status as Param<'_>, &content_type, &body]);
            }
            client.query(&statement, &params).await
        });
    }

    /// Sends the items of conversations, in order, so that two batches cannot deadlock; then the notifications and the
    /// commit.
    fn finish(&mut self, mut appended: Vec<AppendedItems<'a>>, changed: Vec<Cow<'a, str>>, single: bool) {
        let client = self.connection.client();
        appended.sort_by(|one, other| one.conversation.cmp(&other.conversation));
        for added in appended {
            let statement = self.statement(APPEND);
            self.pipeline.push(async move {
                let items: Vec<&str> = added.items.iter().map(text_of).collect();
                let params: [Param<'_>; 5] = [&added.tenant_id, &added.user, &added.conversation, &added.ids, &items];
                client.query(&statement, &params).await
            });
        }
        if !changed.is_empty() {
            let statement = self.statement(NOTIFY);
            self.pipeline.push(async move { client.query(&statement, &[&changed]).await });
        }
        if !single {
            self.simple("COMMIT");
        }
    }
}

/// Status, content type and body of an answer; all `None` if the answer is the stored response.
pub(super) fn answer_columns(answer: &Answer) -> (Option<i32>, Option<&str>, Option<&[u8]>) {
    match answer {
        Answer::Stored => (None, None, None),
        Answer::Body { status, content_type, body } => (Some(i32::from(*status)), Some(content_type), Some(body)),
    }
}
