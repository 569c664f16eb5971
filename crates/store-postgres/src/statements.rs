//! The statements of the shared code in the form of PostgreSQL. A statement for each of several rows takes one array
//! for each column.

use amalgam_store::statements;

statements! { SqlStatements:
    TenantSql turns_with_text = "
        SELECT tenant_id, response_id, request_id, key_id, user_id, wire, session_id, profile, requested_model, upstream,
            model, status, error, created_at, ended_at, first_token_ms, input_tokens, cached_input_tokens,
            cache_write_tokens, output_tokens, reasoning_tokens, cost, calls, retries, losses, tools, stored, trace
        FROM (
            SELECT * FROM turns
            WHERE tenant_id = $1 AND created_at >= $2 AND created_at <= $3
                AND (created_at < $3 OR response_id < $4)
            ORDER BY created_at DESC, response_id DESC LIMIT $5
        ) AS looked_at
        WHERE (CAST($6 AS text) IS NULL OR key_id = $6)
            AND (CAST($7 AS text) IS NULL OR user_id = $7)
            AND (CAST($8 AS text) IS NULL OR wire = $8)
            AND (CAST($9 AS text) IS NULL OR session_id = $9)
            AND (CAST($10 AS text) IS NULL OR profile = $10)
            AND (CAST($11 AS text) IS NULL OR model = $11 OR requested_model = $11)
            AND (CAST($12 AS text) IS NULL OR upstream = $12)
            AND (CAST($13 AS text) IS NULL OR tools LIKE $13 ESCAPE '\\')
            AND (CAST($14 AS text) IS NULL OR status = $14)
            AND (CAST($15 AS text) IS NULL OR error = $15)
            AND (CAST($16 AS text) IS NULL OR request_id = $16)
            AND (CAST($17 AS bigint) IS NULL OR ended_at - created_at >= $17)
            AND (CAST($18 AS bigint) IS NULL OR cost >= $18)
            AND (CAST($20 AS bigint) IS NULL OR CASE WHEN stored THEN 1 ELSE 0 END = $20)
            AND (CAST($21 AS bigint) IS NULL OR ended_at - created_at <= $21)
            AND (CAST($22 AS bigint) IS NULL OR cost <= $22)
            AND EXISTS (
                SELECT 1 FROM responses JOIN items ON items.chain = responses.chain AND items.position = responses.position
                    AND items.tenant_id = $1
                WHERE responses.tenant_id = $1 AND responses.stem = substr(looked_at.response_id, 23, 16)
                    AND responses.id = looked_at.response_id
                    AND (items.input ILIKE $23 ESCAPE '\\' OR items.output ILIKE $23 ESCAPE '\\')
            )
        ORDER BY created_at DESC, response_id DESC LIMIT $19";
    TenantSql hold_profile = "
        SELECT slug, prompt, tools, model, active, version, created_at, updated_at, tool_choice FROM agent_profiles
        WHERE tenant_id = $1 AND slug = $2 FOR UPDATE";
    TenantSql active_profiles = "
        SELECT slug, prompt, tools, model, active, version, created_at, updated_at, tool_choice FROM agent_profiles
        WHERE tenant_id = $1 AND active ORDER BY slug";
    TenantSql approvals_pending = "
        SELECT id, user_id, response_id, call_id, label, name, arguments, decider, asked_at, expires_at, approve, reason,
            decided_by, decided_at, used_by
        FROM approvals
        WHERE tenant_id = $1 AND (asked_at, id) < ($2, $3) AND approve IS NULL AND expires_at > $5
        ORDER BY asked_at DESC, id DESC LIMIT $4";
    UserSql hold_approval = "
        SELECT id, user_id, response_id, call_id, label, name, arguments, decider, asked_at, expires_at, approve, reason,
            decided_by, decided_at, used_by
        FROM approvals WHERE tenant_id = $1 AND user_id = $2 AND id = $3 FOR UPDATE";
    TenantSql hold_approval_of_tenant = "
        SELECT id, user_id, response_id, call_id, label, name, arguments, decider, asked_at, expires_at, approve, reason,
            decided_by, decided_at, used_by
        FROM approvals WHERE tenant_id = $1 AND id = $2 FOR UPDATE";
    TenantSql offered_tools = "
        SELECT tenant_id, name, kind, description, parameters, settings, guidance, timeout_ms, idempotent, on_error,
            after_call_instruction, requires_approval, active, created_at, updated_at
        FROM agent_tools WHERE tenant_id IN ($1, $2) AND key = ANY ($3)";
    UserSql add_conversation = "
        INSERT INTO conversations (tenant_id, user_id, id, created_at, metadata, next_position)
        VALUES ($1, $2, $3, $4, $5, 0)
        ON CONFLICT (tenant_id, user_id, id) DO NOTHING";
    UserSql take_item_positions = "
        UPDATE conversations SET next_position = next_position + $4
        WHERE tenant_id = $1 AND user_id = $2 AND id = $3
        RETURNING next_position - $4";
    UserSql taken_item_ids = "
        SELECT id FROM conversation_items
        WHERE tenant_id = $1 AND user_id = $2 AND conversation_id = $3 AND id = ANY ($4)";
    UserSql add_conversation_item = "
        INSERT INTO conversation_items (tenant_id, user_id, conversation_id, position, id, item)
        SELECT $1, $2, $3, new.position, new.id, new.item
        FROM unnest($4::bigint[], $5::text[], $6::text[]) AS new (position, id, item)";
    UserSql response_settings = "
        SELECT convert_from(settings, 'UTF8') FROM responses
        WHERE tenant_id = $1 AND user_id = $2 AND stem = $3 AND id = $4";
    UserSql replace_response_settings = "
        UPDATE responses SET settings = convert_to($5, 'UTF8')
        WHERE tenant_id = $1 AND user_id = $2 AND stem = $3 AND id = $4 AND ended_at IS NOT NULL";
    TenantSql known_courses = "
        SELECT id, title, description, modality, kind, status, content_in_sequence, min_percentage_finish, tags, assets,
            url, progress, is_eligible, in_playlist, active
        FROM courses WHERE tenant_id = $1 AND id = ANY ($2)";
    OperatorSql size = "SELECT pg_database_size(current_database())";
    TenantSql delete_courses = "DELETE FROM courses WHERE tenant_id = $1 AND id = ANY ($2)";
    TenantSql forget_learners_of_courses = "DELETE FROM learner_courses WHERE tenant_id = $1 AND course_id = ANY ($2)";
    UserSql courses_of_learner = "
        SELECT user_id, course_id, status, progress, is_eligible, in_playlist, updated_at FROM learner_courses
        WHERE tenant_id = $1 AND user_id = $2 AND course_id = ANY ($3)";
    TenantSql put_learner_courses = "
        INSERT INTO learner_courses (tenant_id, user_id, course_id, status, progress, is_eligible, in_playlist, updated_at)
        SELECT $1, new.\"user\", new.course_id, new.status, new.progress, new.is_eligible, new.in_playlist, $2
        FROM jsonb_to_recordset($3::text::jsonb) AS new (
            \"user\" text, course_id bigint, status text, progress bigint, is_eligible boolean, in_playlist boolean)
        ON CONFLICT (tenant_id, user_id, course_id) DO UPDATE SET status = excluded.status,
            progress = excluded.progress, is_eligible = excluded.is_eligible, in_playlist = excluded.in_playlist,
            updated_at = excluded.updated_at";
    TenantSql delete_learner_courses = "
        DELETE FROM learner_courses
        USING jsonb_to_recordset($2::text::jsonb) AS old (\"user\" text, course_id bigint)
        WHERE tenant_id = $1 AND user_id = old.\"user\" AND learner_courses.course_id = old.course_id";
    UserSql hold_session = "
        SELECT mode, turns FROM agent_sessions WHERE tenant_id = $1 AND user_id = $2 AND id = $3 FOR NO KEY UPDATE";
    UserSql files_of_purpose_upwards = "
        SELECT id, filename, purpose, media_type, bytes, created_at, expires_at FROM files
        WHERE tenant_id = $1 AND user_id = $2 AND purpose = $6 AND id > $3 AND (expires_at IS NULL OR expires_at > $4)
        ORDER BY id LIMIT $5";
    UserSql files_of_purpose_downwards = "
        SELECT id, filename, purpose, media_type, bytes, created_at, expires_at FROM files
        WHERE tenant_id = $1 AND user_id = $2 AND purpose = $6 AND id < $3 AND (expires_at IS NULL OR expires_at > $4)
        ORDER BY id DESC LIMIT $5";
    TenantSql hold_collection = "
        SELECT number, embedding_model FROM knowledge_collections WHERE tenant_id = $1 AND name = $2 FOR UPDATE";
    TenantSql known_documents = "
        SELECT path, number, digest, language, attributes, chunks FROM knowledge_documents
        WHERE tenant_id = $1 AND collection = $2 AND source = $3 AND path = ANY ($4)";
    TenantSql add_document = "
        INSERT INTO knowledge_documents (tenant_id, collection, source, path, language, attributes, digest, chunks,
            updated_at)
        SELECT $1, $2, $3, new.path, new.language, new.attributes, new.digest, new.chunks, $4
        FROM unnest($5::text[], $6::text[], $7::text[], $8::bytea[], $9::bigint[])
            AS new (path, language, attributes, digest, chunks)
        RETURNING path, number";
    TenantSql forget_documents = "DELETE FROM knowledge_documents WHERE tenant_id = $1 AND number = ANY ($2)";
    TenantSql add_chunk = "
        INSERT INTO knowledge_chunks (tenant_id, number, symbol, start_line, end_line, terms, content)
        SELECT $1, new.number, new.symbol, new.start_line, new.end_line, new.terms, new.content
        FROM unnest($2::bigint[], $3::text[], $4::bigint[], $5::bigint[], $6::bytea[], $7::text[])
            AS new (number, symbol, start_line, end_line, terms, content)";
    TenantSql add_chunk_words = "
        INSERT INTO knowledge_words (tenant_id, chunk, words)
        SELECT $1, new.chunk, replace(new.words, '#', $1::bigint::text)::tsvector
        FROM unnest($2::bigint[], $3::text[]) AS new (chunk, words)";
    TenantSql add_embedding = "
        INSERT INTO knowledge_embeddings (tenant_id, collection, chunk, embedding)
        SELECT $1, $2, new.chunk, new.embedding FROM unnest($3::bigint[], $4::bytea[]) AS new (chunk, embedding)";
    TenantSql forget_chunk_words = "
        DELETE FROM knowledge_words USING unnest($2::bigint[], $3::bigint[]) AS old (first, last)
        WHERE tenant_id = $1 AND chunk BETWEEN old.first AND old.last";
    TenantSql forget_chunks = "
        DELETE FROM knowledge_chunks USING unnest($2::bigint[], $3::bigint[]) AS old (first, last)
        WHERE tenant_id = $1 AND number BETWEEN old.first AND old.last";
    TenantSql forget_chunk_embeddings = "
        DELETE FROM knowledge_embeddings USING unnest($3::bigint[], $4::bigint[]) AS old (first, last)
        WHERE tenant_id = $1 AND collection = $2 AND chunk BETWEEN old.first AND old.last";
    TenantSql count_word = "
        SELECT (SELECT count(*) FROM (
            SELECT FROM knowledge_words
            WHERE tenant_id = $1 AND words @@ replace(asked.question, '#', $1::bigint::text)::tsquery LIMIT asked.most
        ) AS counted)
        FROM unnest($2::text[], $3::bigint[]) WITH ORDINALITY AS asked (question, most, place) ORDER BY place";
    TenantSql document_facts = "
        SELECT number, collection, path, language, attributes FROM knowledge_documents
        WHERE tenant_id = $1 AND number = ANY ($2)";
    TenantSql ranked_chunks = "
        SELECT c.number, c.start_line, c.terms, d.number, d.collection, d.path, d.language, d.attributes
        FROM unnest($2::bigint[]) AS wanted (number) JOIN knowledge_chunks c ON c.number = wanted.number
            JOIN knowledge_documents d ON d.number = c.number >> 16
        WHERE c.tenant_id = $1";
    TenantSql chunk_contents = "
        SELECT c.number, c.symbol, c.end_line, c.content FROM knowledge_chunks c
        WHERE c.tenant_id = $1 AND c.number = ANY ($2)";
    TenantSql embeddings = "
        SELECT e.chunk, e.embedding
        FROM unnest($2::bigint[], $3::bigint[]) AS wanted (collection, chunk)
            JOIN knowledge_embeddings e ON e.collection = wanted.collection AND e.chunk = wanted.chunk
        WHERE e.tenant_id = $1";
    UserSql response_of_answer = "
        SELECT value::jsonb->>'turn_id' FROM message_metadata
        WHERE tenant_id = $1 AND user_id = $2 AND kind = 'model_usage' AND value::jsonb->>'response_id' = $3
        ORDER BY number DESC LIMIT 1";
    TenantSql response_of_provider = "
        SELECT id FROM responses
        WHERE tenant_id = $1 AND provenance::jsonb->>'provider_id' = $2
        ORDER BY number DESC LIMIT 1";
    TenantSql response_of_answer_within = "
        SELECT value::jsonb->>'turn_id' FROM message_metadata
        WHERE tenant_id = $1 AND kind = 'model_usage' AND value::jsonb->>'response_id' = $2
        ORDER BY number DESC LIMIT 1";
    TenantSql message_metadata = "
        SELECT message_id, kind, value FROM message_metadata
        WHERE tenant_id = $1 AND message_id = ANY ($2) ORDER BY message_id, number";
    TenantSql message_tool_calls = "
        SELECT message_id, kind, value FROM message_metadata
        WHERE tenant_id = $1 AND message_id = ANY ($2) AND kind = 'tool_call' ORDER BY message_id, number";
    OperatorSql hold_limit = "
        SELECT kind, tenant_id, id, generation, updated_at, requests_per_minute, tokens_per_minute, max_in_flight,
            budget_amount, budget_unit, budget_period, models, tools, minute, requests, tokens, tokens_reserved, in_flight,
            period, epoch, spent, spent_reserved, alerted
        FROM limits WHERE kind = $1 AND tenant_id = $2 AND id = $3 FOR UPDATE";
    OperatorSql add_key = "
        INSERT INTO api_keys (id, tenant_id, hash, prefix, label, rights, user_id, created_at, expires_at, revoked_at,
            last_used_at)
        SELECT $1::text, id, $3::bytea, $4::text, $5::text, $6::text, $7::text, $8::bigint, $9::bigint, $10::bigint,
            $11::bigint
        FROM tenants WHERE id = $2
        ON CONFLICT DO NOTHING";
    /// In the order of ids, so that two transactions with the same keys do not deadlock.
    OperatorSql touch_key = "
        WITH used AS (
            SELECT k.id, u.at FROM api_keys k
            JOIN (SELECT id, max(at) AS at FROM unnest($1::text[], $2::bigint[]) AS one (id, at) GROUP BY id) AS u
                ON u.id = k.id
            WHERE k.last_used_at IS NULL OR k.last_used_at < u.at
            ORDER BY k.id FOR NO KEY UPDATE OF k
        )
        UPDATE api_keys SET last_used_at = used.at FROM used WHERE used.id = api_keys.id";
}
