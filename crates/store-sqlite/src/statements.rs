//! The statements of the shared code in the form of SQLite. Writing transactions run one at a time, so nothing is
//! locked. Arrays are JSON texts.

use amalgam_store::statements;

statements! { SqlStatements:
    TenantSql turns_with_text = "
        SELECT tenant_id, response_id, request_id, key_id, user_id, wire, session_id, profile, requested_model, upstream,
            model, status, error, created_at, ended_at, first_token_ms, input_tokens, cached_input_tokens,
            cache_write_tokens, output_tokens, reasoning_tokens, cost, calls, retries, losses, tools, stored, trace
        FROM (
            SELECT * FROM turns
            WHERE tenant_id = ?1 AND created_at >= ?2 AND created_at <= ?3
                AND (created_at < ?3 OR response_id < ?4)
            ORDER BY created_at DESC, response_id DESC LIMIT ?5
        ) AS looked_at
        WHERE (CAST(?6 AS text) IS NULL OR key_id = ?6)
            AND (CAST(?7 AS text) IS NULL OR user_id = ?7)
            AND (CAST(?8 AS text) IS NULL OR wire = ?8)
            AND (CAST(?9 AS text) IS NULL OR session_id = ?9)
            AND (CAST(?10 AS text) IS NULL OR profile = ?10)
            AND (CAST(?11 AS text) IS NULL OR model = ?11 OR requested_model = ?11)
            AND (CAST(?12 AS text) IS NULL OR upstream = ?12)
            AND (CAST(?13 AS text) IS NULL OR tools LIKE ?13 ESCAPE '\\')
            AND (CAST(?14 AS text) IS NULL OR status = ?14)
            AND (CAST(?15 AS text) IS NULL OR error = ?15)
            AND (CAST(?16 AS text) IS NULL OR request_id = ?16)
            AND (CAST(?17 AS bigint) IS NULL OR ended_at - created_at >= ?17)
            AND (CAST(?18 AS bigint) IS NULL OR cost >= ?18)
            AND (CAST(?20 AS bigint) IS NULL OR CASE WHEN stored THEN 1 ELSE 0 END = ?20)
            AND (CAST(?21 AS bigint) IS NULL OR ended_at - created_at <= ?21)
            AND (CAST(?22 AS bigint) IS NULL OR cost <= ?22)
            AND EXISTS (
                SELECT 1 FROM responses CROSS JOIN items ON items.place = responses.place
                WHERE responses.tenant_id = ?1 AND responses.stem = substr(looked_at.response_id, 23, 16)
                    AND responses.id = looked_at.response_id
                    AND (items.input LIKE ?23 ESCAPE '\\' OR items.output LIKE ?23 ESCAPE '\\')
            )
        ORDER BY created_at DESC, response_id DESC LIMIT ?19";
    TenantSql hold_profile = "
        SELECT slug, prompt, tools, model, active, version, created_at, updated_at, tool_choice FROM agent_profiles
        WHERE tenant_id = ?1 AND slug = ?2";
    TenantSql active_profiles = "
        SELECT slug, prompt, tools, model, active, version, created_at, updated_at, tool_choice FROM agent_profiles
        WHERE tenant_id = ?1 AND active = 1 ORDER BY slug";
    TenantSql approvals_pending = "
        SELECT id, user_id, response_id, call_id, label, name, arguments, decider, asked_at, expires_at, approve, reason,
            decided_by, decided_at, used_by
        FROM approvals INDEXED BY approvals_pending
        WHERE tenant_id = ?1 AND (asked_at, id) < (?2, ?3) AND approve IS NULL AND expires_at > ?5
        ORDER BY asked_at DESC, id DESC LIMIT ?4";
    UserSql hold_approval = "
        SELECT id, user_id, response_id, call_id, label, name, arguments, decider, asked_at, expires_at, approve, reason,
            decided_by, decided_at, used_by
        FROM approvals WHERE tenant_id = ?1 AND user_id = ?2 AND id = ?3";
    TenantSql hold_approval_of_tenant = "
        SELECT id, user_id, response_id, call_id, label, name, arguments, decider, asked_at, expires_at, approve, reason,
            decided_by, decided_at, used_by
        FROM approvals WHERE tenant_id = ?1 AND id = ?2";
    TenantSql offered_tools = "
        SELECT tenant_id, name, kind, description, parameters, settings, guidance, timeout_ms, idempotent, on_error,
            after_call_instruction, requires_approval, active, created_at, updated_at
        FROM agent_tools WHERE tenant_id IN (?1, ?2) AND key IN (SELECT value FROM json_each(?3))";
    UserSql add_conversation = "
        INSERT INTO conversations (tenant_id, user_id, id, created_at, metadata) VALUES (?1, ?2, ?3, ?4, ?5)
        ON CONFLICT (tenant_id, id) DO NOTHING";
    /// Writing transactions run one at a time, so all positions after the last item are free.
    UserSql take_item_positions = "
        SELECT COALESCE((
            SELECT MAX(position) + 1 FROM conversation_items
            WHERE tenant_id = ?1 AND user_id = ?2 AND conversation_id = ?3
        ), 0)
        FROM conversations WHERE tenant_id = ?1 AND user_id = ?2 AND id = ?3 AND ?4 >= 0";
    UserSql taken_item_ids = "
        SELECT id FROM conversation_items
        WHERE tenant_id = ?1 AND user_id = ?2 AND conversation_id = ?3 AND id IN (SELECT value FROM json_each(?4))";
    UserSql add_conversation_item = "
        INSERT INTO conversation_items (tenant_id, user_id, conversation_id, position, id, item)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
    UserSql response_settings = "
        SELECT settings FROM responses WHERE tenant_id = ?1 AND user_id = ?2 AND stem = ?3 AND id = ?4";
    UserSql replace_response_settings = "
        UPDATE responses SET settings = ?5
        WHERE tenant_id = ?1 AND user_id = ?2 AND stem = ?3 AND id = ?4 AND ended_at IS NOT NULL";
    TenantSql known_courses = "
        SELECT id, title, description, modality, kind, status, content_in_sequence, min_percentage_finish, tags, assets,
            url, progress, is_eligible, in_playlist, active
        FROM courses WHERE tenant_id = ?1 AND id IN (SELECT value FROM json_each(?2))";
    OperatorSql size = "SELECT p.page_count * s.page_size FROM pragma_page_count() AS p, pragma_page_size() AS s";
    TenantSql delete_courses = "
        DELETE FROM courses WHERE tenant_id = ?1 AND id IN (SELECT value FROM json_each(?2))";
    TenantSql forget_learners_of_courses = "
        DELETE FROM learner_courses WHERE tenant_id = ?1 AND course_id IN (SELECT value FROM json_each(?2))";
    UserSql courses_of_learner = "
        SELECT user_id, course_id, status, progress, is_eligible, in_playlist, updated_at FROM learner_courses
        WHERE tenant_id = ?1 AND user_id = ?2 AND course_id IN (SELECT value FROM json_each(?3))";
    TenantSql put_learner_courses = "
        INSERT INTO learner_courses (tenant_id, user_id, course_id, status, progress, is_eligible, in_playlist, updated_at)
        SELECT ?1, value ->> 'user', value ->> 'course_id', value ->> 'status', value ->> 'progress',
            value ->> 'is_eligible', value ->> 'in_playlist', ?2
        FROM json_each(?3) WHERE true
        ON CONFLICT (tenant_id, user_id, course_id) DO UPDATE SET status = excluded.status,
            progress = excluded.progress, is_eligible = excluded.is_eligible, in_playlist = excluded.in_playlist,
            updated_at = excluded.updated_at";
    TenantSql delete_learner_courses = "
        DELETE FROM learner_courses WHERE tenant_id = ?1 AND (user_id, course_id) IN (
            SELECT value ->> 'user', value ->> 'course_id' FROM json_each(?2))";
    UserSql hold_session = "SELECT mode, turns FROM agent_sessions WHERE tenant_id = ?1 AND user_id = ?2 AND id = ?3";
    UserSql files_of_purpose_upwards = "
        SELECT id, filename, purpose, media_type, bytes, created_at, expires_at FROM files INDEXED BY files_by_purpose
        WHERE tenant_id = ?1 AND user_id = ?2 AND purpose = ?6 AND id > ?3 AND (expires_at IS NULL OR expires_at > ?4)
        ORDER BY id LIMIT ?5";
    UserSql files_of_purpose_downwards = "
        SELECT id, filename, purpose, media_type, bytes, created_at, expires_at FROM files INDEXED BY files_by_purpose
        WHERE tenant_id = ?1 AND user_id = ?2 AND purpose = ?6 AND id < ?3 AND (expires_at IS NULL OR expires_at > ?4)
        ORDER BY id DESC LIMIT ?5";
    TenantSql hold_collection = "
        SELECT number, embedding_model FROM knowledge_collections WHERE tenant_id = ?1 AND name = ?2";
    TenantSql known_documents = "
        SELECT document.path, number, digest, language, attributes, chunks
        FROM json_each(?4) AS wanted CROSS JOIN knowledge_documents AS document ON document.path = wanted.value
        WHERE tenant_id = ?1 AND collection = ?2 AND source = ?3";
    TenantSql add_document = "
        INSERT INTO knowledge_documents (tenant_id, collection, source, updated_at, path, language, attributes, digest,
            chunks)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
        RETURNING path, number";
    TenantSql forget_documents = "DELETE FROM knowledge_documents WHERE tenant_id = ?1 AND number IN (SELECT value FROM json_each(?2))";
    TenantSql add_chunk = "
        INSERT INTO knowledge_chunks (tenant_id, number, symbol, start_line, end_line, terms, content)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
    TenantSql add_chunk_words = "
        INSERT INTO knowledge_words (rowid, words)
        SELECT number, replace(?3, '#', ?1) FROM knowledge_chunks WHERE tenant_id = ?1 AND number = ?2";
    TenantSql add_embedding = "
        INSERT INTO knowledge_embeddings (tenant_id, collection, chunk, embedding) VALUES (?1, ?2, ?3, ?4)";
    TenantSql forget_chunk_words = "
        DELETE FROM knowledge_words WHERE rowid IN (
            SELECT number FROM knowledge_chunks WHERE tenant_id = ?1 AND number BETWEEN ?2 AND ?3
        )";
    TenantSql forget_chunks = "DELETE FROM knowledge_chunks WHERE tenant_id = ?1 AND number BETWEEN ?2 AND ?3";
    TenantSql forget_chunk_embeddings = "
        DELETE FROM knowledge_embeddings WHERE tenant_id = ?1 AND collection = ?2 AND chunk BETWEEN ?3 AND ?4";
    TenantSql count_word = "
        SELECT COUNT(*) FROM (
            SELECT ?1 AS tenant_id FROM knowledge_words WHERE knowledge_words MATCH replace(?2, '#', ?1) LIMIT ?3
        ) AS counted";
    TenantSql document_facts = "
        SELECT number, collection, document.path, language, attributes
        FROM json_each(?2) AS wanted CROSS JOIN knowledge_documents AS document ON number = wanted.value
        WHERE tenant_id = ?1";
    TenantSql ranked_chunks = "
        SELECT chunk.number, start_line, terms, document.number, collection, document.path, language, attributes
        FROM json_each(?2) AS wanted CROSS JOIN knowledge_chunks AS chunk ON chunk.number = wanted.value
            CROSS JOIN knowledge_documents AS document ON document.number = chunk.number >> 16
        WHERE chunk.tenant_id = ?1";
    TenantSql chunk_contents = "
        SELECT number, symbol, end_line, content
        FROM json_each(?2) AS wanted CROSS JOIN knowledge_chunks ON number = wanted.value
        WHERE tenant_id = ?1";
    TenantSql embeddings = "SELECT chunk, embedding FROM knowledge_embeddings WHERE tenant_id = ?1 AND collection = ?2 AND chunk = ?3";
    UserSql response_of_answer = "
        SELECT json_extract(value, '$.turn_id') FROM message_metadata
        WHERE tenant_id = ?1 AND user_id = ?2 AND kind = 'model_usage'
            AND json_extract(value, '$.response_id') = ?3
        ORDER BY number DESC LIMIT 1";
    TenantSql response_of_provider = "
        SELECT id FROM responses
        WHERE tenant_id = ?1 AND json_extract(provenance, '$.provider_id') = ?2
        ORDER BY number DESC LIMIT 1";
    TenantSql response_of_answer_within = "
        SELECT json_extract(value, '$.turn_id') FROM message_metadata
        WHERE tenant_id = ?1 AND kind = 'model_usage' AND json_extract(value, '$.response_id') = ?2
        ORDER BY number DESC LIMIT 1";
    /// The index returns the records of a message in their order.
    TenantSql message_metadata = "
        SELECT message_id, kind, metadata.value
        FROM json_each(?2) AS wanted CROSS JOIN message_metadata AS metadata ON message_id = wanted.value
        WHERE tenant_id = ?1";
    TenantSql message_tool_calls = "
        SELECT message_id, kind, metadata.value
        FROM json_each(?2) AS wanted CROSS JOIN message_metadata AS metadata ON message_id = wanted.value
        WHERE tenant_id = ?1 AND kind = 'tool_call'";
    OperatorSql hold_limit = "
        SELECT kind, tenant_id, id, generation, updated_at, requests_per_minute, tokens_per_minute, max_in_flight,
            budget_amount, budget_unit, budget_period, models, tools, minute, requests, tokens, tokens_reserved, in_flight,
            period, epoch, spent, spent_reserved, alerted
        FROM limits WHERE kind = ?1 AND tenant_id = ?2 AND id = ?3";
    OperatorSql add_key = "
        INSERT INTO api_keys (id, tenant_id, hash, prefix, label, rights, user_id, created_at, expires_at, revoked_at,
            last_used_at)
        SELECT ?1, tenants.id, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11 FROM tenants WHERE tenants.id = ?2
        ON CONFLICT DO NOTHING";
    OperatorSql touch_key = "UPDATE api_keys SET last_used_at = MAX(COALESCE(last_used_at, 0), ?2) WHERE id = ?1";
}
