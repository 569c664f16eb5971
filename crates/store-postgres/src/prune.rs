//! Deletes data past its retention, and all data on request.
use amalgam_core::{
    Stem, StoreError,
    store::{PruneCounts, Reset, Retention},
};
use amalgam_store::{rows, statements};

use super::{
    chains::{self, DeletedResponse},
    connection::PostgresFailure,
    job::signed,
    pool::{Lease, Pool},
    turn_list::OLD_TURNS,
};

statements! {
    /// Selects a bounded number of streams that have ended, and marks them, so that they are not searched again.
    OperatorSql OLD_STREAMS = "
        WITH old AS (
            SELECT tenant_id, stem, id FROM responses
            WHERE streamed AND created_at < $1 AND COALESCE(ended_at, created_at) < $1
                AND status NOT IN ('queued', 'in_progress')
            ORDER BY created_at LIMIT $2 FOR UPDATE SKIP LOCKED
        ), changed AS (
            UPDATE responses SET streamed = false FROM old
            WHERE responses.tenant_id = old.tenant_id AND responses.stem = old.stem AND responses.id = old.id
            RETURNING responses.tenant_id, responses.id
        ), removed AS (
            DELETE FROM stream_events USING changed
            WHERE stream_events.tenant_id = changed.tenant_id AND stream_events.response_id = changed.id
            RETURNING 1
        )
        SELECT (SELECT count(*) FROM changed) + (SELECT count(*) FROM removed)";
    /// Calls that no other call refers to; the next run deletes those that they referred to.
    OperatorSql OLD_TRANSCRIPTS = "
        DELETE FROM transcripts WHERE ctid = ANY (ARRAY(
            SELECT ctid FROM transcripts old
            WHERE asked_at < $1 AND NOT EXISTS (SELECT FROM transcripts later
                WHERE later.tenant_id = old.tenant_id AND later.base_response = old.response_id
                    AND later.base_number = old.number)
            LIMIT $2))";
    OperatorSql OLD_CLAIMS = "
        DELETE FROM idempotency WHERE ctid = ANY (ARRAY(
            SELECT ctid FROM idempotency WHERE process IS NULL AND created_at < $1 LIMIT $2))";
    /// The tool calls of a running turn stay until it ends. A response is looked up by its stem, which its id ends
    /// with.
    OperatorSql OLD_RUNS = "
        DELETE FROM tool_runs WHERE ctid = ANY (ARRAY(
            SELECT ctid FROM tool_runs old
            WHERE started_at < $1 AND (output IS NOT NULL OR NOT EXISTS (SELECT FROM responses r
                WHERE r.tenant_id = old.tenant_id AND r.stem = left(right(old.response_id, 24), 16)
                    AND r.id = old.response_id AND r.process IS NOT NULL))
            LIMIT $2))";
    OperatorSql OLD_APPROVALS = "
        DELETE FROM approvals WHERE ctid = ANY (ARRAY(SELECT ctid FROM approvals WHERE expires_at < $1 LIMIT $2))";
    /// Expired files, with their content.
    OperatorSql EXPIRED_FILES = "
        WITH old AS (
            SELECT tenant_id, user_id, id FROM files WHERE expires_at < $1
            ORDER BY expires_at LIMIT $2 FOR UPDATE SKIP LOCKED
        ), contents AS (
            DELETE FROM file_contents USING old
            WHERE file_contents.tenant_id = old.tenant_id AND file_contents.user_id = old.user_id
                AND file_contents.file_id = old.id
        )
        DELETE FROM files USING old
        WHERE files.tenant_id = old.tenant_id AND files.user_id = old.user_id AND files.id = old.id";
    OperatorSql OLD_RESPONSES = "
        SELECT tenant_id, user_id, id FROM responses
        WHERE created_at < $1 AND status NOT IN ('queued', 'in_progress') LIMIT $2";
    OperatorSql RESET_RUNTIME = "
        TRUNCATE responses, items, turns, usage_hours, stream_events, transcripts, tool_runs, approvals, idempotency, conversations,
            conversation_items, session_queue, message_metadata, messages, sessions, agent_sessions, agent_steps,
            mode_changes, files, file_contents, webhook_deliveries, client_messages";
    /// What turns of these tenants have written.
    OperatorSql RESET_RUNTIME_OF = "
        WITH
            of_responses AS (DELETE FROM responses WHERE tenant_id = ANY ($1)),
            of_items AS (DELETE FROM items WHERE tenant_id = ANY ($1)),
            of_turns AS (DELETE FROM turns WHERE tenant_id = ANY ($1)),
            of_usage_hours AS (DELETE FROM usage_hours WHERE tenant_id = ANY ($1)),
            of_stream_events AS (DELETE FROM stream_events WHERE tenant_id = ANY ($1)),
            of_transcripts AS (DELETE FROM transcripts WHERE tenant_id = ANY ($1)),
            of_tool_runs AS (DELETE FROM tool_runs WHERE tenant_id = ANY ($1)),
            of_approvals AS (DELETE FROM approvals WHERE tenant_id = ANY ($1)),
            of_idempotency AS (DELETE FROM idempotency WHERE tenant_id = ANY ($1)),
            of_conversations AS (DELETE FROM conversations WHERE tenant_id = ANY ($1)),
            of_conversation_items AS (DELETE FROM conversation_items WHERE tenant_id = ANY ($1)),
            of_session_queue AS (DELETE FROM session_queue WHERE tenant_id = ANY ($1)),
            of_message_metadata AS (DELETE FROM message_metadata WHERE tenant_id = ANY ($1)),
            of_messages AS (DELETE FROM messages WHERE tenant_id = ANY ($1)),
            of_sessions AS (DELETE FROM sessions WHERE tenant_id = ANY ($1)),
            of_mode_changes AS (DELETE FROM mode_changes WHERE tenant_id = ANY ($1)),
            of_agent_steps AS (DELETE FROM agent_steps WHERE tenant_id = ANY ($1)),
            of_agent_sessions AS (DELETE FROM agent_sessions WHERE tenant_id = ANY ($1)),
            of_client_messages AS (DELETE FROM client_messages WHERE tenant_id = ANY ($1)),
            of_webhook_deliveries AS (DELETE FROM webhook_deliveries WHERE tenant_id = ANY ($1)),
            of_file_contents AS (DELETE FROM file_contents WHERE tenant_id = ANY ($1))
        DELETE FROM files WHERE tenant_id = ANY ($1)";
    OperatorSql RESET_ASSISTANTS = "
        TRUNCATE responses, items, turns, usage_hours, stream_events, transcripts, tool_runs, approvals, idempotency, conversations,
            conversation_items, session_queue, message_metadata, messages, sessions, agent_sessions, agent_steps,
            mode_changes, files, file_contents, webhook_deliveries, client_messages, agent_tools, agent_configs, agent_profiles, profile_versions";
    /// What the assistants of these tenants are made of.
    OperatorSql RESET_ASSISTANTS_OF = "
        WITH
            of_agent_tools AS (DELETE FROM agent_tools WHERE tenant_id = ANY ($1)),
            of_agent_configs AS (DELETE FROM agent_configs WHERE tenant_id = ANY ($1)),
            of_agent_profiles AS (DELETE FROM agent_profiles WHERE tenant_id = ANY ($1))
        DELETE FROM profile_versions WHERE tenant_id = ANY ($1)";
    OperatorSql RESET_ALL = "
        TRUNCATE responses, items, turns, usage_hours, stream_events, transcripts, tool_runs, approvals, idempotency, conversations,
            conversation_items, session_queue, message_metadata, messages, sessions, agent_sessions, agent_steps,
            mode_changes, files, file_contents, agent_tools, agent_configs, agent_profiles, profile_versions, agent_modes,
            courses, learner_courses, knowledge_collections, knowledge_documents, knowledge_chunks, knowledge_embeddings, knowledge_words,
            webhook_deliveries, client_messages, webhook_endpoints, limits, limit_holds, model_prices, api_keys, tenants, memory,
            console_sessions, console_links";
}

/// The number of rows of each kind that one run deletes.
const AT_ONCE: i64 = 1000;
/// A smaller number, since streams and responses have several rows each.
const WHOLE_AT_ONCE: i64 = 100;

pub(super) async fn prune(pool: &Pool, retention: Retention) -> Result<PruneCounts, StoreError> {
    let mut rows = 0;
    let streams = pool.repeatably(move |connection: Lease| async move {
        let row = connection.row(OLD_STREAMS, &[&signed(retention.events_before_ms), &WHOLE_AT_ONCE]).await?;
        Ok(row.map(|row| row.try_get::<_, i64>(0)).transpose()?.unwrap_or_default())
    });
    rows += streams.await?.cast_unsigned();
    let others = pool.repeatably(move |connection: Lease| async move {
        let mut rows = connection.execute(OLD_CLAIMS, &[&signed(retention.claims_before_ms), &AT_ONCE]).await?;
        for sql in [OLD_TRANSCRIPTS, OLD_RUNS, OLD_APPROVALS] {
            rows += connection.execute(sql, &[&signed(retention.transcripts_before_ms), &AT_ONCE]).await?;
        }
        rows += connection.execute(EXPIRED_FILES, &[&signed(retention.files_before_ms), &WHOLE_AT_ONCE]).await?;
        Ok(rows)
    });
    rows += others.await?;
    if let Some(before) = retention.responses_before_ms {
        rows += prune_responses(pool, before).await?;
        let turns = pool.repeatably(move |connection: Lease| async move {
            connection.execute(OLD_TURNS, &[&signed(before), &AT_ONCE]).await
        });
        rows += turns.await?;
    }
    Ok(PruneCounts { rows })
}

/// Deletes each response by itself, as its owner would: items stay while another response continues them.
async fn prune_responses(pool: &Pool, before_ms: u64) -> Result<u64, StoreError> {
    let old = pool.repeatably(move |connection: Lease| async move {
        let found = connection.rows(OLD_RESPONSES, &[&signed(before_ms), &WHOLE_AT_ONCE]).await?;
        let old = found.iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?, row.try_get(2)?)));
        old.collect::<Result<Vec<(i64, String, String)>, PostgresFailure>>()
    });
    let mut count = 0;
    for (tenant_id, user, id) in old.await? {
        if let Some(stem) = Stem::of(&id) {
            let scope = rows::owner(tenant_id, &user, None)?;
            let response = DeletedResponse { scope: &scope, stem: stem.as_str(), id: &id };
            count += u64::from(chains::delete(pool, response).await?);
        }
    }
    Ok(count)
}

/// Deletes the data that `what` selects. Processes stay: they may be running.
pub(super) async fn reset(pool: &Pool, what: Reset) -> Result<(), StoreError> {
    let (statement, of_tenants, tenants) = match what {
        Reset::Runtime(tenants) => (RESET_RUNTIME, &[RESET_RUNTIME_OF][..], tenants),
        Reset::Assistants(tenants) => (RESET_ASSISTANTS, &[RESET_RUNTIME_OF, RESET_ASSISTANTS_OF][..], tenants),
        Reset::Everything => (RESET_ALL, &[][..], Vec::new()),
    };
    if tenants.is_empty() {
        return pool
            .repeatably(move |connection: Lease| async move { connection.execute(statement, &[]).await.map(drop) })
            .await;
    }
    // Each statement can be repeated, so if the connection breaks between them, another attempt is enough.
    for statement in of_tenants.iter().copied() {
        let tenants = tenants.clone();
        pool.repeatably(move |connection: Lease| {
            let tenants = tenants.clone();
            async move { connection.execute(statement, &[&tenants]).await.map(drop) }
        })
        .await?;
    }
    Ok(())
}
