//! Every statement. Each is a literal of one of three kinds, which say what must be bound before it can run: `query.rs`.
//!
//! In statements about a user's things `?1` is the tenant and `?2` the user; about a tenant's, `?1` is the tenant.

macro_rules! statements {
    ($($kind:ident { $($(#[$note:meta])* $name:ident = $text:literal;)+ })+) => {
        $($($(#[$note])* pub(in crate::sqlite) const $name: $kind = $kind($text);)+)+

        /// All of them: kind, name, text.
        #[cfg(test)]
        pub(in crate::sqlite) const ALL: &[(&str, &str, &str)] = &[$($((stringify!($kind), stringify!($name), $text)),+),+];
    };
}

mod assistant;
mod execute;
mod knowledge;

macro_rules! kinds {
    ($($(#[$note:meta])* $kind:ident)+) => {
        $(
            $(#[$note])*
            #[derive(Clone, Copy)]
            pub(in crate::sqlite) struct $kind(&'static str);

            impl $kind {
                pub(in crate::sqlite) fn text(self) -> &'static str {
                    self.0
                }
            }
        )+
    };
}

#[cfg(test)]
pub(in crate::sqlite) use self::{
    assistant::ALL as ALL_OF_ASSISTANTS, execute::ALL as ALL_OF_SESSIONS, knowledge::ALL as ALL_OF_KNOWLEDGE,
};
pub(in crate::sqlite) use self::{assistant::*, execute::*, knowledge::*};

kinds! {
    /// About the things of one user.
    UserSql
    /// About the things of one tenant.
    TenantSql
    /// About the installation.
    OperatorSql
}

statements! {
    UserSql {
        // Responses.
        RESPONSE = "
            SELECT responses.id, status, completed_at, error, incomplete_reason, usage, created_at, settings, background,
                streamed, conversation_id, responses.place, input, output, provenance
            FROM responses CROSS JOIN items ON items.place = responses.place
            WHERE responses.tenant_id = ?1 AND responses.user_id = ?2 AND stem = ?3 AND id = ?4";
        // From the response's own run to the one that this forked from, and so on; of each the part up to the fork.
        LINEAGE = "
            WITH RECURSIVE path (status, depth, first, last, upstream) AS (
                SELECT status, 0, (place >> 20) << 20, place, upstream FROM responses
                WHERE tenant_id = ?1 AND user_id = ?2 AND stem = ?3 AND id = ?4
                UNION ALL
                SELECT path.status, depth + 1, (parent >> 20) << 20, parent, NULL
                FROM path CROSS JOIN items ON items.place = path.first
                WHERE tenant_id = ?1 AND user_id = ?2 AND parent IS NOT NULL
            )
            SELECT path.status, depth, place, input, output, path.upstream
            FROM path CROSS JOIN items ON items.place BETWEEN path.first AND path.last
            WHERE tenant_id = ?1 AND user_id = ?2";
        ITEMS_BY_STEM = "
            SELECT input, output
            FROM responses CROSS JOIN items ON items.place = responses.place
            WHERE responses.tenant_id = ?1 AND responses.user_id = ?2 AND stem = ?3";
        EVENTS = "
            SELECT first, last, frames FROM stream_events
            WHERE tenant_id = ?1 AND user_id = ?2 AND response_id = ?3 AND last > ?4 ORDER BY first";
        LAST_EVENT = "
            SELECT last FROM stream_events
            WHERE tenant_id = ?1 AND user_id = ?2 AND response_id = ?3 ORDER BY first DESC LIMIT 1";

        // Beginning, going on and ending.
        PARENT = "
            SELECT 1 FROM items
            WHERE tenant_id = ?1 AND user_id = ?2 AND place = ?3 AND response_id = ?4 AND forgotten = 0";
        GO_ON = "
            INSERT INTO items (tenant_id, user_id, place, response_id, input, output) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
            ON CONFLICT (place) DO NOTHING";
        BEGIN_RUN = "
            INSERT INTO items (tenant_id, user_id, place, response_id, input, output, parent)
            VALUES (?1, ?2, (COALESCE((SELECT MAX(place) FROM items) >> 20, 0) + 1) << 20, ?3, ?4, ?5, ?6)";
        GIVE_UP_PLACE = "DELETE FROM items WHERE tenant_id = ?1 AND user_id = ?2 AND place = ?3";
        // The number is the time, so that age is found without an index; within ten minutes rows come in the order in which
        // they are written, behind the last one, since a row between others costs more pages.
        ADD_RESPONSE = "
            INSERT INTO responses (number, tenant_id, user_id, stem, id, place, status, background, streamed, created_at,
                completed_at, ended_at, error, incomplete_reason, usage, conversation_id, process, settings, request,
                upstream, provenance)
            VALUES (
                COALESCE((
                    SELECT number + 1 FROM responses WHERE number >= (?9 << 20) AND number < ((?9 + 600000) << 20)
                    ORDER BY number DESC LIMIT 1
                ), ?9 << 20),
                ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20)
            ON CONFLICT (tenant_id, stem) DO NOTHING";
        HEAD = "
            SELECT status, process, place, conversation_id, background FROM responses
            WHERE tenant_id = ?1 AND user_id = ?2 AND stem = ?3 AND id = ?4";
        KEEP_RAW_ANSWER = "
            UPDATE responses SET raw_answer = ?5 WHERE tenant_id = ?1 AND user_id = ?2 AND stem = ?3 AND id = ?4";
        RAW_ANSWER = "
            SELECT raw_answer FROM responses WHERE tenant_id = ?1 AND user_id = ?2 AND stem = ?3 AND id = ?4";
        START_RESPONSE = "
            UPDATE responses SET status = 'in_progress', process = ?5
            WHERE tenant_id = ?1 AND user_id = ?2 AND stem = ?3 AND id = ?4";
        END_RESPONSE = "
            UPDATE responses SET process = NULL, request = NULL, status = ?5, completed_at = ?6, ended_at = ?7, error = ?8,
                incomplete_reason = ?9, usage = ?10, upstream = ?11, provenance = ?12
            WHERE tenant_id = ?1 AND user_id = ?2 AND stem = ?3 AND id = ?4";
        // What a turn had said when it was cancelled from outside, unless that is known.
        COMPLETE_CANCELLED = "
            UPDATE responses SET usage = ?5, provenance = ?6
            WHERE tenant_id = ?1 AND user_id = ?2 AND stem = ?3 AND id = ?4 AND status = 'cancelled' AND provenance IS NULL";
        END_ITEMS = "
            UPDATE items SET output = ?4 WHERE tenant_id = ?1 AND user_id = ?2 AND place = ?3";
        INPUT = "SELECT input FROM items WHERE tenant_id = ?1 AND user_id = ?2 AND place = ?3";
        ADD_EVENTS = "
            INSERT INTO stream_events (tenant_id, user_id, response_id, first, last, frames)
            VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
        ADD_TRANSCRIPT = "
            INSERT INTO transcripts (id, tenant_id, user_id, response_id, number, upstream, model, asked_at, first_token_ms,
                duration_ms, retries, cut, usage, losses, error, request, response, base_response, base_number, base_shared)
            VALUES (
                COALESCE((
                    SELECT id + 1 FROM transcripts WHERE id >= (?7 << 20) AND id < ((?7 + 600000) << 20)
                    ORDER BY id DESC LIMIT 1
                ), ?7 << 20),
                ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19)";
        PUT_RUN = "
            INSERT INTO tool_runs (tenant_id, user_id, response_id, number, label, name, item_id, call_id, idempotent,
                started_at, duration_ms, error, detail, arguments, output)
            VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)
            ON CONFLICT (tenant_id, response_id, number) DO UPDATE SET label = excluded.label, name = excluded.name,
                item_id = excluded.item_id, call_id = excluded.call_id, idempotent = excluded.idempotent,
                started_at = excluded.started_at, duration_ms = excluded.duration_ms, error = excluded.error,
                detail = excluded.detail, arguments = excluded.arguments, output = excluded.output";
        ADD_APPROVAL = "
            INSERT INTO approvals (tenant_id, user_id, id, response_id, call_id, label, name, arguments, decider, asked_at,
                expires_at, approve, reason, decided_by, decided_at, used_by)
            VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16)";

        // Approvals.
        APPROVAL = "
            SELECT id, user_id, response_id, call_id, label, name, arguments, decider, asked_at, expires_at, approve, reason,
                decided_by, decided_at, used_by
            FROM approvals WHERE tenant_id = ?1 AND user_id = ?2 AND id = ?3";
        DECIDE = "
            UPDATE approvals SET approve = ?4, reason = ?5, decided_by = ?6, decided_at = ?7
            WHERE tenant_id = ?1 AND user_id = ?2 AND id = ?3";
        USE_APPROVAL = "
            UPDATE approvals SET used_by = ?4
            WHERE tenant_id = ?1 AND user_id = ?2 AND id = ?3 AND approve = 1 AND COALESCE(used_by, ?4) = ?4";

        // Forgetting.
        FORGET_HEAD = "
            DELETE FROM responses WHERE tenant_id = ?1 AND user_id = ?2 AND stem = ?3 AND id = ?4
            RETURNING place";
        FORGET_EVENTS = "DELETE FROM stream_events WHERE tenant_id = ?1 AND user_id = ?2 AND response_id = ?3";
        HAS_TRANSCRIPTS = "
            SELECT 1 FROM transcripts WHERE tenant_id = ?1 AND user_id = ?2 AND response_id = ?3";
        FORGET_TRANSCRIPTS = "
            DELETE FROM transcripts WHERE tenant_id = ?1 AND user_id = ?2 AND response_id = ?3
                AND NOT EXISTS (
                    SELECT 1 FROM transcripts AS later
                    WHERE later.base_response = transcripts.response_id AND later.base_number = transcripts.number
                )
            RETURNING base_response, base_number";
        FORGET_TRANSCRIPT = "
            DELETE FROM transcripts WHERE tenant_id = ?1 AND user_id = ?2 AND response_id = ?3 AND number = ?4
                AND NOT EXISTS (SELECT 1 FROM transcripts AS later WHERE later.base_response = ?3 AND later.base_number = ?4)
            RETURNING base_response, base_number";
        FORGET_RUNS = "DELETE FROM tool_runs WHERE tenant_id = ?1 AND user_id = ?2 AND response_id = ?3";
        FORGET_APPROVALS = "DELETE FROM approvals WHERE tenant_id = ?1 AND user_id = ?2 AND response_id = ?3";
        IS_BUILT_ON = "
            SELECT 1 FROM items
            WHERE tenant_id = ?1 AND user_id = ?2 AND place = ?3 + 1 AND forgotten < 2
            UNION ALL
            SELECT 1 FROM items WHERE tenant_id = ?1 AND user_id = ?2 AND parent = ?3";
        RESPONSE_AT = "SELECT response_id FROM items WHERE tenant_id = ?1 AND user_id = ?2 AND place = ?3";
        MARK_FORGOTTEN = "
            UPDATE items SET forgotten = 1 WHERE tenant_id = ?1 AND user_id = ?2 AND place = ?3";
        // The position stays taken: a request that is about to continue it must not find another response there.
        EMPTY_PLACE = "
            UPDATE items SET forgotten = 2, input = '[]', output = NULL
            WHERE tenant_id = ?1 AND user_id = ?2 AND place = ?3";
        REMOVE_RUN = "
            DELETE FROM items WHERE tenant_id = ?1 AND user_id = ?2 AND place BETWEEN ?3 AND ?4
            RETURNING parent";
        IS_FORGOTTEN = "
            SELECT 1 FROM items
            WHERE tenant_id = ?1 AND user_id = ?2 AND place = ?3 AND forgotten = 1";

        // Requests that are done once.
        ADD_CLAIM = "
            INSERT INTO idempotency (tenant_id, user_id, route, key, body_hash, response_id, created_at, process)
            VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
            ON CONFLICT (tenant_id, user_id, route, key) DO NOTHING";
        CLAIM = "
            SELECT body_hash, response_id, process IS NOT NULL, answer_status, answer_type, answer_body FROM idempotency
            WHERE tenant_id = ?1 AND user_id = ?2 AND route = ?3 AND key = ?4";
        ANSWER_CLAIM = "
            UPDATE idempotency SET process = NULL, answer_status = ?6, answer_type = ?7, answer_body = ?8
            WHERE tenant_id = ?1 AND user_id = ?2 AND route = ?3 AND key = ?4 AND response_id = ?5
                AND process IS NOT NULL
            RETURNING response_id";
        DROP_CLAIM = "
            DELETE FROM idempotency
            WHERE tenant_id = ?1 AND user_id = ?2 AND route = ?3 AND key = ?4 AND response_id = ?5
                AND process IS NOT NULL
            RETURNING response_id";

        // Conversations.
        ADD_CONVERSATION = "
            INSERT INTO conversations (tenant_id, user_id, id, created_at, metadata) VALUES (?1, ?2, ?3, ?4, ?5)";
        CONVERSATION = "
            SELECT id, created_at, metadata FROM conversations WHERE tenant_id = ?1 AND user_id = ?2 AND id = ?3";
        UPDATE_CONVERSATION = "
            UPDATE conversations SET metadata = ?4 WHERE tenant_id = ?1 AND user_id = ?2 AND id = ?3
            RETURNING id, created_at, metadata";
        FORGET_CONVERSATION = "DELETE FROM conversations WHERE tenant_id = ?1 AND user_id = ?2 AND id = ?3";
        FORGET_CONVERSATION_ITEMS = "
            DELETE FROM conversation_items WHERE tenant_id = ?1 AND user_id = ?2 AND conversation_id = ?3";
        NEXT_PLACE = "
            SELECT COALESCE(MAX(position) + 1, 0) FROM conversation_items
            WHERE tenant_id = ?1 AND user_id = ?2 AND conversation_id = ?3";
        ADD_CONVERSATION_ITEM = "
            INSERT INTO conversation_items (tenant_id, user_id, conversation_id, position, id, item)
            VALUES (?1, ?2, ?3, ?4, ?5, ?6)
            ON CONFLICT (tenant_id, id, conversation_id) DO NOTHING";
        PLACE_OF_ITEM = "
            SELECT position FROM conversation_items
            WHERE tenant_id = ?1 AND user_id = ?2 AND conversation_id = ?3 AND id = ?4";
        ITEMS_UPWARDS = "
            SELECT id, item FROM conversation_items
            WHERE tenant_id = ?1 AND user_id = ?2 AND conversation_id = ?3 AND position > ?4
            ORDER BY position LIMIT ?5";
        ITEMS_DOWNWARDS = "
            SELECT id, item FROM conversation_items
            WHERE tenant_id = ?1 AND user_id = ?2 AND conversation_id = ?3 AND position < ?4
            ORDER BY position DESC LIMIT ?5";
        CONVERSATION_ITEM = "
            SELECT id, item FROM conversation_items
            WHERE tenant_id = ?1 AND user_id = ?2 AND conversation_id = ?3 AND id = ?4";
        ITEM_OF_ANY_CONVERSATION = "
            SELECT item FROM conversation_items WHERE tenant_id = ?1 AND user_id = ?2 AND id = ?3";
        FORGET_CONVERSATION_ITEM = "
            DELETE FROM conversation_items
            WHERE tenant_id = ?1 AND user_id = ?2 AND conversation_id = ?3 AND id = ?4";
    }

    TenantSql {
        TURN = "
            SELECT responses.id, status, completed_at, error, incomplete_reason, usage, created_at, settings, background,
                streamed, conversation_id, responses.place, input, output, provenance, responses.user_id
            FROM responses CROSS JOIN items ON items.place = responses.place
            WHERE responses.tenant_id = ?1 AND stem = ?2 AND id = ?3";
        TRANSCRIPTS = "
            SELECT number, upstream, model, asked_at, first_token_ms, duration_ms, retries, request, response, cut, usage,
                losses, error, base_response, base_number, base_shared
            FROM transcripts WHERE tenant_id = ?1 AND response_id = ?2 ORDER BY number";
        TRANSCRIPT_BASE = "
            SELECT request, base_response, base_number, base_shared
            FROM transcripts WHERE tenant_id = ?1 AND response_id = ?2 AND number = ?3";
        STATUS = "SELECT status FROM responses WHERE tenant_id = ?1 AND stem = ?2 AND id = ?3";

        // The tool bank: a tenant's, or the installation's under the number that no tenant has.
        TOOLS = "
            SELECT tenant_id, name, kind, description, parameters, settings, guidance, timeout_ms, idempotent, on_error,
                after_call_instruction, requires_approval, active, created_at, updated_at
            FROM agent_tools WHERE tenant_id = ?1 AND key > ?2 ORDER BY key LIMIT ?3";
        TOOL = "
            SELECT tenant_id, name, kind, description, parameters, settings, guidance, timeout_ms, idempotent, on_error,
                after_call_instruction, requires_approval, active, created_at, updated_at
            FROM agent_tools WHERE tenant_id = ?1 AND key = ?2";
        PUT_TOOL = "
            INSERT INTO agent_tools (tenant_id, key, name, kind, description, parameters, settings, guidance, timeout_ms,
                idempotent, on_error, after_call_instruction, requires_approval, active, created_at, updated_at)
            VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16)
            ON CONFLICT (tenant_id, key) DO UPDATE SET name = excluded.name, kind = excluded.kind,
                description = excluded.description, parameters = excluded.parameters, settings = excluded.settings,
                guidance = excluded.guidance, timeout_ms = excluded.timeout_ms, idempotent = excluded.idempotent,
                on_error = excluded.on_error, after_call_instruction = excluded.after_call_instruction,
                requires_approval = excluded.requires_approval, active = excluded.active,
                updated_at = excluded.updated_at";
        RESEAL_TOOL = "UPDATE agent_tools SET settings = ?4 WHERE tenant_id = ?1 AND key = ?2 AND settings = ?3";
        FORGET_TOOL = "DELETE FROM agent_tools WHERE tenant_id = ?1 AND key = ?2";

        // Calls of tools.
        RUNS = "
            SELECT number, item_id, call_id, label, name, arguments, idempotent, started_at, output, error, detail,
                duration_ms
            FROM tool_runs WHERE tenant_id = ?1 AND response_id = ?2 ORDER BY number";
        UNKNOWN_RUNS = "
            SELECT name FROM tool_runs
            WHERE tenant_id = ?1 AND response_id = ?2 AND output IS NULL AND idempotent = 0 ORDER BY number";
        STATISTICS = "
            SELECT COUNT(*), COUNT(error), COUNT(*) - COUNT(duration_ms), COALESCE(SUM(duration_ms), 0),
                COALESCE(MAX(duration_ms), 0), MAX(started_at)
            FROM tool_runs WHERE tenant_id = ?1 AND label = ?2 AND name = ?3 AND started_at >= ?4";

        // Approvals.
        APPROVAL_OF_TENANT = "
            SELECT id, user_id, response_id, call_id, label, name, arguments, decider, asked_at, expires_at, approve, reason,
                decided_by, decided_at, used_by
            FROM approvals WHERE tenant_id = ?1 AND id = ?2";
        APPROVALS = "
            SELECT id, user_id, response_id, call_id, label, name, arguments, decider, asked_at, expires_at, approve, reason,
                decided_by, decided_at, used_by
            FROM approvals WHERE tenant_id = ?1 AND (asked_at, id) < (?2, ?3)
            ORDER BY asked_at DESC, id DESC LIMIT ?4";
        APPROVALS_PENDING = "
            SELECT id, user_id, response_id, call_id, label, name, arguments, decider, asked_at, expires_at, approve, reason,
                decided_by, decided_at, used_by
            FROM approvals INDEXED BY approvals_pending
            WHERE tenant_id = ?1 AND (asked_at, id) < (?2, ?3) AND approve IS NULL AND expires_at > ?5
            ORDER BY asked_at DESC, id DESC LIMIT ?4";
        DECIDE_OF_TENANT = "
            UPDATE approvals SET approve = ?3, reason = ?4, decided_by = ?5, decided_at = ?6
            WHERE tenant_id = ?1 AND id = ?2";
    }

    OperatorSql {
        PING = "SELECT 1 FROM memory LIMIT 1";

        // Tenants and keys.
        ADD_TENANT = "
            INSERT INTO tenants (id, name, state, ai_agent_enabled, created_at) VALUES (?1, ?2, ?3, 1, ?4)
            ON CONFLICT (id) DO NOTHING
            RETURNING id, name, state, ai_agent_enabled, created_at";
        TENANTS = "
            SELECT id, name, state, ai_agent_enabled, created_at FROM tenants WHERE id > ?1 ORDER BY id LIMIT ?2";
        TENANT = "SELECT id, name, state, ai_agent_enabled, created_at FROM tenants WHERE id = ?1";
        CHANGE_TENANT = "
            UPDATE tenants SET name = COALESCE(?2, name), state = COALESCE(?3, state),
                ai_agent_enabled = COALESCE(?4, ai_agent_enabled)
            WHERE id = ?1
            RETURNING id, name, state, ai_agent_enabled, created_at";
        ADD_KEY = "
            INSERT INTO api_keys (id, tenant_id, hash, prefix, label, rights, user_id, created_at, expires_at, revoked_at,
                last_used_at)
            SELECT ?1, tenants.id, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11 FROM tenants WHERE tenants.id = ?2
            ON CONFLICT DO NOTHING";
        KEYS = "
            SELECT id, tenant_id, prefix, label, rights, user_id, created_at, expires_at, revoked_at, last_used_at
            FROM api_keys WHERE id > ?1 ORDER BY id LIMIT ?2";
        KEYS_OF_TENANT = "
            SELECT id, tenant_id, prefix, label, rights, user_id, created_at, expires_at, revoked_at, last_used_at
            FROM api_keys WHERE tenant_id = ?3 AND id > ?1 ORDER BY id LIMIT ?2";
        REVOKE_KEY = "
            UPDATE api_keys SET revoked_at = COALESCE(revoked_at, ?3)
            WHERE id = ?1 AND tenant_id = COALESCE(?2, tenant_id)
            RETURNING id, tenant_id, prefix, label, rights, user_id, created_at, expires_at, revoked_at, last_used_at";
        KEY_BY_HASH = "
            SELECT api_keys.id, tenant_id, prefix, label, rights, user_id, api_keys.created_at, expires_at, revoked_at,
                last_used_at, tenants.id, name, state, ai_agent_enabled, tenants.created_at
            FROM api_keys CROSS JOIN tenants ON tenants.id = tenant_id WHERE hash = ?1";
        TOUCH_KEY = "UPDATE api_keys SET last_used_at = MAX(COALESCE(last_used_at, 0), ?2) WHERE id = ?1";
        REMEMBERED = "SELECT text FROM memory WHERE name = ?1";
        REMEMBER_ONCE = "INSERT INTO memory (name, text) VALUES (?1, ?2) ON CONFLICT (name) DO NOTHING";
        REMEMBER = "
            INSERT INTO memory (name, text) VALUES (?1, ?2) ON CONFLICT (name) DO UPDATE SET text = excluded.text";

        // Processes.
        BEAT = "INSERT INTO processes (id, beat) VALUES (?1, ?2) ON CONFLICT (id) DO UPDATE SET beat = excluded.beat";
        PROCESSES = "SELECT id, beat FROM processes ORDER BY id";
        FORGET_PROCESS = "DELETE FROM processes WHERE id = ?1 AND beat = ?2";
        REQUEUE_WAITING = "
            UPDATE responses SET process = NULL WHERE process = ?1 AND status = 'queued' AND request IS NOT NULL
            RETURNING id";
        FAIL_HELD = "
            UPDATE responses SET status = 'failed', error = ?2, ended_at = ?3, process = NULL, request = NULL
            WHERE process = ?1
            RETURNING number, tenant_id, id";
        TELL_ERROR = "UPDATE responses SET error = ?2 WHERE number = ?1";
        CLAIMS_HELD = "SELECT tenant_id, user_id, route, key, response_id FROM idempotency WHERE process = ?1";
        TAKE_QUEUED = "
            UPDATE responses SET process = ?1
            WHERE number IN (
                SELECT number FROM responses WHERE status = 'queued' AND process IS NULL ORDER BY number LIMIT ?2
            )
            RETURNING number, tenant_id, user_id, id, created_at, request, streamed,
                (SELECT state FROM tenants WHERE tenants.id = tenant_id)";
        COUNT_QUEUED = "
            SELECT count(*) FILTER (WHERE tenant_id = ?1), count(*) FROM responses
            WHERE status = 'queued' AND process IS NULL";
        GIVE_BACK = "
            UPDATE responses SET process = NULL, status = 'queued'
            WHERE process = ?1 AND id = ?2 AND background = 1 AND request IS NOT NULL";
        HELD = "
            SELECT responses.id, tenant_id, user_id, tenants.state
            FROM responses LEFT JOIN tenants ON tenants.id = tenant_id
            WHERE process = ?1 ORDER BY number";

        // What can go. Each looks at a bounded number of the oldest.
        OLD_STREAMS = "
            SELECT number, tenant_id, user_id, id FROM responses
            WHERE streamed = 1 AND created_at < ?1 AND COALESCE(ended_at, created_at) < ?1
                AND status NOT IN ('queued', 'in_progress')
            ORDER BY created_at LIMIT ?2";
        STREAM_IS_GONE = "UPDATE responses SET streamed = 0 WHERE number = ?1";
        OLD_TRANSCRIPTS = "
            DELETE FROM transcripts
            WHERE id IN (
                SELECT id FROM transcripts AS old
                WHERE id < (?1 << 20) AND NOT EXISTS (
                    SELECT 1 FROM transcripts AS later
                    WHERE later.base_response = old.response_id AND later.base_number = old.number
                )
                ORDER BY id LIMIT ?2
            )";
        OLD_CLAIMS = "
            DELETE FROM idempotency
            WHERE (tenant_id, user_id, route, key) IN (
                SELECT tenant_id, user_id, route, key FROM idempotency
                WHERE process IS NULL AND created_at < ?1 ORDER BY created_at LIMIT ?2
            )";
        // A call that has not come to an end is part of its turn for as long as that runs.
        OLD_RUNS = "
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
        OLD_APPROVALS = "
            DELETE FROM approvals
            WHERE (tenant_id, id) IN (
                SELECT tenant_id, id FROM approvals WHERE expires_at < ?1 ORDER BY expires_at LIMIT ?2
            )";
        OLD_RESPONSES = "
            SELECT tenant_id, user_id, id FROM responses
            WHERE number < (?1 << 20) AND status NOT IN ('queued', 'in_progress') ORDER BY number LIMIT ?2";

        // Everything.
        RESET_RESPONSES = "DELETE FROM responses";
        RESET_RESPONSES_OF = "DELETE FROM responses WHERE tenant_id = ?1";
        RESET_ITEMS = "DELETE FROM items";
        RESET_ITEMS_OF = "DELETE FROM items WHERE tenant_id = ?1";
        RESET_EVENTS = "DELETE FROM stream_events";
        RESET_EVENTS_OF = "DELETE FROM stream_events WHERE tenant_id = ?1";
        RESET_TRANSCRIPTS = "DELETE FROM transcripts";
        RESET_TRANSCRIPTS_OF = "DELETE FROM transcripts WHERE tenant_id = ?1";
        RESET_CLAIMS = "DELETE FROM idempotency";
        RESET_CLAIMS_OF = "DELETE FROM idempotency WHERE tenant_id = ?1";
        RESET_CONVERSATIONS = "DELETE FROM conversations";
        RESET_CONVERSATIONS_OF = "DELETE FROM conversations WHERE tenant_id = ?1";
        RESET_CONVERSATION_ITEMS = "DELETE FROM conversation_items";
        RESET_CONVERSATION_ITEMS_OF = "DELETE FROM conversation_items WHERE tenant_id = ?1";
        RESET_RUNS = "DELETE FROM tool_runs";
        RESET_RUNS_OF = "DELETE FROM tool_runs WHERE tenant_id = ?1";
        RESET_APPROVALS = "DELETE FROM approvals";
        RESET_APPROVALS_OF = "DELETE FROM approvals WHERE tenant_id = ?1";
        RESET_TOOLS = "DELETE FROM agent_tools";
        RESET_TOOLS_OF = "DELETE FROM agent_tools WHERE tenant_id = ?1";
        RESET_KEYS = "DELETE FROM api_keys";
        RESET_TENANTS = "DELETE FROM tenants";
        RESET_MEMORY = "DELETE FROM memory";
    }
}
