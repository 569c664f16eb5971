//! Deletes data past its retention, and all data on request.
use amalgam_core::{
    Operator, Stem,
    store::{PruneCounts, Reset, Retention},
};
#[cfg(test)]
use amalgam_store::sql::Declared;
use amalgam_store::{rows, sql::OperatorSql, statements};

use super::{
    failure::SqliteFailure,
    files,
    job::Transaction,
    query::{int, text},
    responses, turn_list,
};

statements! {
    OperatorSql OLD_STREAMS = "
        SELECT number, tenant_id, user_id, id FROM responses
        WHERE streamed = 1 AND created_at < ?1 AND COALESCE(ended_at, created_at) < ?1
            AND status NOT IN ('queued', 'in_progress')
        ORDER BY created_at LIMIT ?2";
    OperatorSql STREAM_IS_GONE = "UPDATE responses SET streamed = 0 WHERE number = ?1";
    OperatorSql OLD_TRANSCRIPTS = "
        DELETE FROM transcripts
        WHERE id IN (
            SELECT id FROM transcripts AS old
            WHERE id < (?1 << 20) AND NOT EXISTS (
                SELECT 1 FROM transcripts AS later
                WHERE later.base_response = old.response_id AND later.base_number = old.number
            )
            ORDER BY id LIMIT ?2
        )";
    OperatorSql OLD_CLAIMS = "
        DELETE FROM idempotency
        WHERE (tenant_id, user_id, route, key) IN (
            SELECT tenant_id, user_id, route, key FROM idempotency
            WHERE process IS NULL AND created_at < ?1 ORDER BY created_at LIMIT ?2
        )";
    /// The tool calls of a running turn stay until it ends.
    OperatorSql OLD_RUNS = "
        DELETE FROM tool_runs
        WHERE id IN (
            SELECT id FROM tool_runs AS old
            WHERE started_at < ?1 AND (output IS NOT NULL OR NOT EXISTS (
                SELECT 1 FROM responses
                WHERE responses.tenant_id = old.tenant_id AND stem = substr(old.response_id, -24, 16)
                    AND responses.id = old.response_id AND process IS NOT NULL
            ))
            ORDER BY started_at LIMIT ?2
        )";
    OperatorSql OLD_APPROVALS = "
        DELETE FROM approvals
        WHERE (tenant_id, id) IN (
            SELECT tenant_id, id FROM approvals WHERE expires_at < ?1 ORDER BY expires_at LIMIT ?2
        )";
    OperatorSql OLD_RESPONSES = "
        SELECT tenant_id, user_id, id FROM responses
        WHERE number < (?1 << 20) AND status NOT IN ('queued', 'in_progress') ORDER BY number LIMIT ?2";
    OperatorSql RESET_WORDS = "INSERT INTO course_words (course_words) VALUES ('delete-all')";
    OperatorSql RESET_CHUNK_WORDS = "INSERT INTO knowledge_words (knowledge_words) VALUES ('delete-all')";
}

/// The number of rows of each kind that one run deletes, because other jobs wait for the writer meanwhile.
const AT_ONCE: i64 = 200;
/// A smaller number, since each stream and response takes several statements.
const WHOLE_AT_ONCE: i64 = 50;

pub(super) fn prune(
    transaction: &Transaction<'_>,
    operator: Operator,
    retention: Retention,
) -> Result<PruneCounts, SqliteFailure> {
    let database = transaction.database;
    let mut rows = 0;

    let before = int(retention.events_before_ms)?;
    let streams = database.operator(operator, OLD_STREAMS, &[&before, &WHOLE_AT_ONCE])?.all(|row| {
        Ok((row.get::<_, i64>(0)?, rows::owner(row.get(1)?, text(row, 2)?, None)?, row.get::<_, String>(3)?))
    })?;
    for (number, scope, id) in streams {
        rows += database.user(&scope, responses::FORGET_EVENTS, &[&id])?.run()?;
        // Records that the stream has no events, so that they are not searched again.
        rows += database.operator(operator, STREAM_IS_GONE, &[&number])?.run()?;
    }

    let before = int(retention.transcripts_before_ms)?;
    for statement in [OLD_TRANSCRIPTS, OLD_RUNS, OLD_APPROVALS] {
        rows += database.operator(operator, statement, &[&before, &AT_ONCE])?.run()?;
    }
    let before = int(retention.claims_before_ms)?;
    rows += database.operator(operator, OLD_CLAIMS, &[&before, &AT_ONCE])?.run()?;

    rows += files::prune(database, operator, int(retention.files_before_ms)?, WHOLE_AT_ONCE)?;

    if let Some(before) = retention.responses_before_ms {
        let old = database
            .operator(operator, OLD_RESPONSES, &[&int(before)?, &WHOLE_AT_ONCE])?
            .all(|row| Ok((rows::owner(row.get(0)?, text(row, 1)?, None)?, row.get::<_, String>(2)?)))?;
        for (scope, id) in old {
            if let Some(stem) = Stem::of(&id) {
                rows += u64::from(responses::forget(transaction, &scope, stem, &id)?);
            }
        }
        rows += turn_list::prune(database, operator, int(before)?, AT_ONCE)?;
    }
    Ok(PruneCounts { rows })
}

/// Statements that empty tables.
macro_rules! reset_all {
    ($($table:literal)+) => { [$(OperatorSql::new(concat!("DELETE FROM ", $table))),+] };
}

/// The same for the rows of one tenant, beside those for all.
macro_rules! reset {
    ($($table:literal)+) => {
        [$((
            OperatorSql::new(concat!("DELETE FROM ", $table)),
            OperatorSql::new(concat!("DELETE FROM ", $table, " WHERE tenant_id = ?1")),
        )),+]
    };
}

/// What turns and callers have written.
const RUNTIME: [(OperatorSql, OperatorSql); 22] = reset!(
    "responses" "items" "turns" "usage_hours" "stream_events" "transcripts" "tool_runs" "approvals" "idempotency" "conversations"
    "conversation_items" "session_queue" "message_metadata" "messages" "sessions" "mode_changes" "agent_steps"
    "agent_sessions" "file_contents" "files" "webhook_deliveries" "client_messages"
);

/// The definitions of assistants.
const ASSISTANTS: [(OperatorSql, OperatorSql); 4] =
    reset!("agent_tools" "agent_configs" "agent_profiles" "profile_versions");

/// What else goes with everything, besides the indexes of words. Processes stay: those that are alive go on.
const REST: [OperatorSql; 16] = reset_all!(
    "agent_modes" "courses" "learner_courses" "knowledge_collections" "knowledge_documents" "knowledge_chunks" "knowledge_embeddings"
    "api_keys" "tenants" "memory" "webhook_endpoints" "limits" "limit_holds" "model_prices" "console_sessions" "console_links"
);

/// Every statement that empties a table, for tests.
#[cfg(test)]
pub(super) fn resets() -> Vec<Declared> {
    let pairs = RUNTIME.into_iter().chain(ASSISTANTS).flat_map(|(all, of_tenant)| [all, of_tenant]);
    pairs.chain(REST).map(|sql| ("OperatorSql", "RESET", sql.into())).collect()
}

/// Deletes the data that `what` selects.
pub(super) fn reset(transaction: &Transaction<'_>, operator: Operator, what: &Reset) -> Result<(), SqliteFailure> {
    let database = transaction.database;
    let (tables, tenants): (Vec<_>, &[i64]) = match what {
        Reset::Runtime(tenants) => (RUNTIME.to_vec(), tenants),
        Reset::Assistants(tenants) => (RUNTIME.into_iter().chain(ASSISTANTS).collect(), tenants),
        Reset::Everything => (RUNTIME.into_iter().chain(ASSISTANTS).collect(), &[]),
    };
    for (all, of_tenant) in tables {
        if tenants.is_empty() {
            database.operator(operator, all, &[])?.run()?;
        }
        for tenant_id in tenants {
            database.operator(operator, of_tenant, &[tenant_id])?.run()?;
        }
    }
    for statement in REST.into_iter().chain([RESET_WORDS, RESET_CHUNK_WORDS]).filter(|_| *what == Reset::Everything) {
        database.operator(operator, statement, &[])?.run()?;
    }
    Ok(())
}
