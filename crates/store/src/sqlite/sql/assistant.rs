//! The statements of assistants: settings, profiles, threads, courses.

use super::{OperatorSql, TenantSql, UserSql};

statements! {
    UserSql {
        // By the model's own id of an answer.
        RESPONSE_OF_ANSWER = "
            SELECT json_extract(value, '$.turn_id') FROM message_metadata
            WHERE tenant_id = ?1 AND user_id = ?2 AND kind = 'model_usage'
                AND json_extract(value, '$.response_id') = ?3
            ORDER BY number DESC LIMIT 1";

        // The queue of a session.
        ACTIVE_SESSION = "
            SELECT id FROM sessions WHERE tenant_id = ?1 AND user_id = ?2 AND profile = ?3 AND active = 1";
        ADD_SESSION = "
            INSERT INTO sessions (tenant_id, user_id, profile, active, messages, created_at, updated_at)
            VALUES (?1, ?2, ?3, 1, 0, ?4, ?4)
            RETURNING id";
        ADD_ENTRY = "
            INSERT INTO session_line (tenant_id, user_id, session_id, process, mark) VALUES (?1, ?2, ?3, ?4, ?5)
            RETURNING number";
        FIRST_ENTRY = "
            SELECT number, response_id FROM session_line
            WHERE tenant_id = ?1 AND user_id = ?2 AND session_id = ?3 ORDER BY number LIMIT 1";
        ENTRY = "
            SELECT 1 FROM session_line WHERE tenant_id = ?1 AND user_id = ?2 AND session_id = ?3 AND number = ?4";
        START_ENTRY = "
            UPDATE session_line SET response_id = ?5
            WHERE tenant_id = ?1 AND user_id = ?2 AND session_id = ?3 AND number = ?4";
        REMOVE_ENTRY = "
            DELETE FROM session_line WHERE tenant_id = ?1 AND user_id = ?2 AND session_id = ?3 AND number = ?4
            RETURNING response_id";
        REMOVE_MARKED_ENTRY = "
            DELETE FROM session_line WHERE tenant_id = ?1 AND user_id = ?2 AND mark = ?3 RETURNING session_id";
        END_ENTRY = "
            DELETE FROM session_line
            WHERE tenant_id = ?1 AND user_id = ?2 AND session_id = ?3 AND number = ?4 AND response_id = ?5";
        RELEASE_ENTRY = "
            DELETE FROM session_line WHERE tenant_id = ?1 AND user_id = ?2 AND response_id = ?3
            RETURNING session_id, number";

        // What is said.
        ADD_MESSAGE = "
            INSERT INTO messages (tenant_id, user_id, id, session_id, role, content, response_id, created_at)
            VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
        COUNT_MESSAGES = "
            UPDATE sessions SET messages = messages + ?4, updated_at = MAX(updated_at, ?5)
            WHERE tenant_id = ?1 AND user_id = ?2 AND id = ?3";
        ADD_METADATA = "
            INSERT INTO message_metadata (tenant_id, user_id, message_id, kind, value) VALUES (?1, ?2, ?3, ?4, ?5)";
        HISTORY = "
            SELECT role, content, response_id FROM messages
            WHERE tenant_id = ?1 AND user_id = ?2 AND session_id = ?3 AND id < ?4 ORDER BY id DESC LIMIT ?5";

        // Threads as their users see them.
        SESSIONS = "
            SELECT id, user_id, profile, active, messages, created_at, updated_at FROM sessions
            WHERE tenant_id = ?1 AND user_id = ?2 AND id < ?3 ORDER BY id DESC LIMIT ?4";
        SESSION = "SELECT 1 FROM sessions WHERE tenant_id = ?1 AND user_id = ?2 AND id = ?3";
        MESSAGES = "
            SELECT id, session_id, role, content, response_id, created_at FROM messages
            WHERE tenant_id = ?1 AND user_id = ?2 AND session_id = ?3 AND id < ?4 ORDER BY id DESC LIMIT ?5";
        MESSAGE = "
            SELECT id, session_id, role, content, response_id, created_at FROM messages
            WHERE tenant_id = ?1 AND user_id = ?2 AND id = ?3";
    }

    TenantSql {
        // Settings and profiles.
        CONFIG = "SELECT settings, api_key, revision, updated_at FROM agent_configs WHERE tenant_id = ?1";
        ADD_CONFIG = "
            INSERT INTO agent_configs (tenant_id, settings, api_key, revision, updated_at) VALUES (?1, ?2, ?3, ?4, ?5)
            ON CONFLICT (tenant_id) DO NOTHING";
        CHANGE_CONFIG = "
            UPDATE agent_configs SET settings = ?2, api_key = ?3, revision = ?4, updated_at = ?5
            WHERE tenant_id = ?1 AND revision = ?4 - 1";
        PROFILE = "
            SELECT slug, prompt, tools, model, active, version, created_at, updated_at, tool_choice FROM agent_profiles
            WHERE tenant_id = ?1 AND slug = ?2";
        PROFILES = "
            SELECT slug, prompt, tools, model, active, version, created_at, updated_at, tool_choice FROM agent_profiles
            WHERE tenant_id = ?1 AND slug > ?2 ORDER BY slug LIMIT ?3";
        ACTIVE_PROFILES = "
            SELECT slug, prompt, tools, model, active, version, created_at, updated_at, tool_choice FROM agent_profiles
            WHERE tenant_id = ?1 AND active = 1 ORDER BY slug";
        PUT_PROFILE = "
            INSERT INTO agent_profiles (tenant_id, slug, prompt, tools, model, active, version, created_at, updated_at,
                tool_choice)
            VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)
            ON CONFLICT (tenant_id, slug) DO UPDATE SET prompt = excluded.prompt, tools = excluded.tools,
                model = excluded.model, active = excluded.active, version = excluded.version,
                updated_at = excluded.updated_at, tool_choice = excluded.tool_choice";
        ADD_VERSION = "
            INSERT INTO profile_versions (tenant_id, slug, prompt, tools, model, active, version, created_at, updated_at,
                tool_choice)
            VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)";
        FORGET_PROFILE = "DELETE FROM agent_profiles WHERE tenant_id = ?1 AND slug = ?2";
        FORGET_VERSIONS = "DELETE FROM profile_versions WHERE tenant_id = ?1 AND slug = ?2";
        VERSIONS = "
            SELECT slug, prompt, tools, model, active, version, created_at, updated_at, tool_choice FROM profile_versions
            WHERE tenant_id = ?1 AND slug = ?2 AND version < ?3 ORDER BY version DESC LIMIT ?4";

        // Threads as administrators see them.
        SESSIONS_OF_TENANT = "
            SELECT id, user_id, profile, active, messages, created_at, updated_at FROM sessions
            WHERE tenant_id = ?1 AND id < ?2 ORDER BY id DESC LIMIT ?3";
        SESSIONS_OF_USER = "
            SELECT id, user_id, profile, active, messages, created_at, updated_at FROM sessions
            WHERE tenant_id = ?1 AND user_id = ?4 AND id < ?2 ORDER BY id DESC LIMIT ?3";
        SESSION_OF_TENANT = "
            SELECT id, user_id, profile, active, messages, created_at, updated_at FROM sessions
            WHERE tenant_id = ?1 AND id = ?2";
        MESSAGES_OF_TENANT = "
            SELECT id, session_id, role, content, response_id, created_at FROM messages
            WHERE tenant_id = ?1 AND session_id = ?2 AND id < ?3 ORDER BY id DESC LIMIT ?4";
        RESPONSE_OF_PROVIDER = "
            SELECT id FROM responses
            WHERE tenant_id = ?1 AND json_extract(provenance, '$.provider_id') = ?2
            ORDER BY number DESC LIMIT 1";
        RESPONSE_OF_ANSWER_WITHIN = "
            SELECT json_extract(value, '$.turn_id') FROM message_metadata
            WHERE tenant_id = ?1 AND kind = 'model_usage' AND json_extract(value, '$.response_id') = ?2
            ORDER BY number DESC LIMIT 1";
        METADATA = "
            SELECT kind, value FROM message_metadata WHERE tenant_id = ?1 AND message_id = ?2 ORDER BY number";

        // Courses.
        ANY_COURSE = "
            SELECT id, title, description, modality, kind, status, content_in_sequence, min_percentage_finish, tags, assets,
                url, progress, is_eligible, in_playlist, active
            FROM courses WHERE tenant_id = ?1 AND id = ?2";
        PUT_COURSE = "
            INSERT INTO courses (tenant_id, id, title, description, modality, kind, status, content_in_sequence,
                min_percentage_finish, tags, assets, url, progress, is_eligible, in_playlist, active, updated_at)
            VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17)
            ON CONFLICT (tenant_id, id) DO UPDATE SET title = excluded.title, description = excluded.description,
                modality = excluded.modality, kind = excluded.kind, status = excluded.status,
                content_in_sequence = excluded.content_in_sequence,
                min_percentage_finish = excluded.min_percentage_finish, tags = excluded.tags, assets = excluded.assets,
                url = excluded.url, progress = excluded.progress, is_eligible = excluded.is_eligible,
                in_playlist = excluded.in_playlist, active = excluded.active, updated_at = excluded.updated_at
            RETURNING number";
        PUT_WORDS = "REPLACE INTO course_words (tenant_id, rowid, strong, weak) VALUES (?1, ?2, ?3, ?4)";
        COURSES = "
            SELECT id, title, description, modality, kind, status, content_in_sequence, min_percentage_finish, tags, assets,
                url, progress, is_eligible, in_playlist, active
            FROM courses WHERE tenant_id = ?1 AND active = 1 ORDER BY id LIMIT ?2 OFFSET ?3";
        COUNT_COURSES = "SELECT COUNT(*) FROM courses WHERE tenant_id = ?1 AND active = 1";
        // `?2` is an array of pairs: what to look for, and what it is worth. What is found for one word is added to what was
        // found for the others, so that only a course's own words, and none of other tenants, say where it stands.
        FIND_COURSES = "
            SELECT courses.id, title, description, modality, kind, status, content_in_sequence, min_percentage_finish, tags,
                assets, url, progress, is_eligible, in_playlist, active
            FROM (
                SELECT found.number AS number, found.id AS id, SUM(wanted.value ->> 1) AS worth
                FROM json_each(?2) AS wanted CROSS JOIN course_words CROSS JOIN courses AS found
                WHERE course_words MATCH (wanted.value ->> 0) AND found.number = course_words.rowid
                    AND found.tenant_id = ?1 AND found.active = 1
                GROUP BY found.number ORDER BY worth DESC, found.id LIMIT ?3 OFFSET ?4
            ) AS best CROSS JOIN courses ON courses.number = best.number
            ORDER BY worth DESC, best.id";
        COUNT_FOUND = "
            SELECT COUNT(*) FROM course_words CROSS JOIN courses
            WHERE course_words MATCH ?2 AND courses.number = course_words.rowid
                AND courses.tenant_id = ?1 AND active = 1";
    }

    OperatorSql {
        // What a dead process has in lines.
        ENTRIES_HELD = "
            DELETE FROM session_line WHERE process = ?1 RETURNING session_id, number, tenant_id, user_id, response_id";

        // Everything.
        RESET_SESSIONS = "DELETE FROM sessions";
        RESET_SESSIONS_OF = "DELETE FROM sessions WHERE tenant_id = ?1";
        RESET_QUEUES = "DELETE FROM session_line";
        RESET_QUEUES_OF = "DELETE FROM session_line WHERE tenant_id = ?1";
        RESET_MESSAGES = "DELETE FROM messages";
        RESET_MESSAGES_OF = "DELETE FROM messages WHERE tenant_id = ?1";
        RESET_METADATA = "DELETE FROM message_metadata";
        RESET_METADATA_OF = "DELETE FROM message_metadata WHERE tenant_id = ?1";
        RESET_CONFIGS = "DELETE FROM agent_configs";
        RESET_CONFIGS_OF = "DELETE FROM agent_configs WHERE tenant_id = ?1";
        RESET_PROFILES = "DELETE FROM agent_profiles";
        RESET_PROFILES_OF = "DELETE FROM agent_profiles WHERE tenant_id = ?1";
        RESET_VERSIONS = "DELETE FROM profile_versions";
        RESET_VERSIONS_OF = "DELETE FROM profile_versions WHERE tenant_id = ?1";
        RESET_COURSES = "DELETE FROM courses";
        RESET_WORDS = "INSERT INTO course_words (course_words) VALUES ('delete-all')";
    }
}
