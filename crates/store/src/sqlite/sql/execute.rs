//! The statements of the strict contract: sessions, steps and modes; and those of files.

use super::{OperatorSql, TenantSql, UserSql};

statements! {
    UserSql {
        // Sessions.
        ADD_AGENT_SESSION = "
            INSERT INTO agent_sessions (tenant_id, user_id, id, profile, mode, solution_context, turns, created_at,
                updated_at)
            VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)";
        AGENT_SESSION = "
            SELECT id, profile, mode, solution_context, turns, created_at, updated_at FROM agent_sessions
            WHERE tenant_id = ?1 AND user_id = ?2 AND id = ?3";
        AGENT_SESSIONS = "
            SELECT id, profile, mode, solution_context, turns, created_at, updated_at FROM agent_sessions
            WHERE tenant_id = ?1 AND user_id = ?2 AND id < ?3 ORDER BY id DESC LIMIT ?4";
        TOUCH_AGENT_SESSION = "
            UPDATE agent_sessions SET turns = turns + ?4, solution_context = COALESCE(?5, solution_context),
                updated_at = MAX(updated_at, ?6)
            WHERE tenant_id = ?1 AND user_id = ?2 AND id = ?3";
        FORGET_AGENT_SESSION = "DELETE FROM agent_sessions WHERE tenant_id = ?1 AND user_id = ?2 AND id = ?3";
        FORGET_STEPS = "DELETE FROM agent_steps WHERE tenant_id = ?1 AND user_id = ?2 AND session_id = ?3";
        FORGET_MODE_CHANGES = "DELETE FROM mode_changes WHERE tenant_id = ?1 AND user_id = ?2 AND session_id = ?3";

        // Steps. How one stands is told by its response, and without one by the process that took it.
        STEPS_OF_TURN = "
            SELECT turn, turn_id, fingerprint, response_id, mode, notes, agent_steps.created_at, status,
                processes.id IS NOT NULL
            FROM agent_steps
            LEFT JOIN responses ON responses.tenant_id = ?1 AND responses.user_id = ?2
                AND stem = substr(response_id, -24, 16) AND responses.id = response_id
            LEFT JOIN processes ON processes.id = agent_steps.process
            WHERE agent_steps.tenant_id = ?1 AND agent_steps.user_id = ?2 AND session_id = ?3 AND turn_id = ?4
            ORDER BY step";
        STEPS_OF_TURNS = "
            SELECT turn, turn_id, fingerprint, response_id, mode, notes, agent_steps.created_at, status,
                processes.id IS NOT NULL
            FROM agent_steps
            LEFT JOIN responses ON responses.tenant_id = ?1 AND responses.user_id = ?2
                AND stem = substr(response_id, -24, 16) AND responses.id = response_id
            LEFT JOIN processes ON processes.id = agent_steps.process
            WHERE agent_steps.tenant_id = ?1 AND agent_steps.user_id = ?2 AND session_id = ?3 AND turn >= ?4 AND turn < ?5
            ORDER BY turn, step";
        // The last step of the newest turn but one.
        LAST_OF_OTHERS = "
            SELECT turn, turn_id, status, processes.id IS NOT NULL
            FROM agent_steps
            LEFT JOIN responses ON responses.tenant_id = ?1 AND responses.user_id = ?2
                AND stem = substr(response_id, -24, 16) AND responses.id = response_id
            LEFT JOIN processes ON processes.id = agent_steps.process
            WHERE agent_steps.tenant_id = ?1 AND agent_steps.user_id = ?2 AND session_id = ?3 AND turn_id <> ?4
            ORDER BY turn DESC, step DESC LIMIT 1";
        LAST_ENDED_WELL = "
            SELECT response_id
            FROM agent_steps CROSS JOIN responses ON responses.tenant_id = ?1 AND responses.user_id = ?2
                AND stem = substr(response_id, -24, 16) AND responses.id = response_id
            WHERE agent_steps.tenant_id = ?1 AND agent_steps.user_id = ?2 AND session_id = ?3
                AND status IN ('completed', 'incomplete')
            ORDER BY turn DESC, step DESC LIMIT 1";
        FIRST_OF_PAGE = "
            SELECT turn FROM agent_steps
            WHERE tenant_id = ?1 AND user_id = ?2 AND session_id = ?3 AND turn < ?4 AND step = 1
            ORDER BY turn DESC LIMIT 1 OFFSET ?5";
        RESPONSES_OF_SESSION = "
            SELECT response_id FROM agent_steps WHERE tenant_id = ?1 AND user_id = ?2 AND session_id = ?3
            ORDER BY turn, step";
        ADD_STEP = "
            INSERT INTO agent_steps (tenant_id, user_id, session_id, turn, step, turn_id, fingerprint, response_id, mode,
                notes, process, created_at)
            VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)";
        TAKE_AGAIN = "
            UPDATE agent_steps SET turn = ?6, response_id = ?7, mode = ?8, notes = ?9, process = ?10, created_at = ?11
            WHERE tenant_id = ?1 AND user_id = ?2 AND session_id = ?3 AND turn = ?4 AND step = ?5";
        DROP_STEP = "
            DELETE FROM agent_steps AS dropped
            WHERE dropped.tenant_id = ?1 AND dropped.user_id = ?2 AND session_id = ?3 AND response_id = ?4
                AND NOT EXISTS (
                    SELECT 1 FROM responses
                    WHERE responses.tenant_id = ?1 AND responses.user_id = ?2 AND stem = substr(?4, -24, 16)
                        AND responses.id = ?4
                )
                AND NOT EXISTS (
                    SELECT 1 FROM agent_steps AS later
                    WHERE later.tenant_id = ?1 AND later.user_id = ?2 AND later.session_id = ?3
                        AND later.turn = dropped.turn AND later.step > dropped.step
                )
            RETURNING step";
        LEAVE_STEP = "
            UPDATE agent_steps SET process = NULL WHERE tenant_id = ?1 AND user_id = ?2 AND response_id = ?3";

        // Modes of sessions.
        SET_MODE = "
            UPDATE agent_sessions SET mode = ?4, updated_at = MAX(updated_at, ?5)
            WHERE tenant_id = ?1 AND user_id = ?2 AND id = ?3";
        ADD_MODE_CHANGE = "
            INSERT INTO mode_changes (tenant_id, user_id, session_id, number, previous, mode, reason, turn_id, at)
            VALUES (?1, ?2, ?3, COALESCE((
                SELECT number + 1 FROM mode_changes WHERE tenant_id = ?1 AND user_id = ?2 AND session_id = ?3
                ORDER BY number DESC LIMIT 1
            ), 1), ?4, ?5, ?6, ?7, ?8)";
        MODE_CHANGES = "
            SELECT previous, mode, reason, turn_id, at FROM mode_changes
            WHERE tenant_id = ?1 AND user_id = ?2 AND session_id = ?3 ORDER BY number DESC LIMIT ?4";

        // Files.
        ADD_FILE = "
            INSERT INTO files (tenant_id, user_id, id, filename, purpose, media_type, bytes, created_at, expires_at)
            VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)";
        ADD_CONTENT = "
            INSERT INTO file_contents (tenant_id, user_id, file_id, content) VALUES (?1, ?2, ?3, ?4)";
        FILE = "
            SELECT id, filename, purpose, media_type, bytes, created_at, expires_at FROM files
            WHERE tenant_id = ?1 AND user_id = ?2 AND id = ?3 AND (expires_at IS NULL OR expires_at > ?4)";
        CONTENT = "SELECT content FROM file_contents WHERE tenant_id = ?1 AND user_id = ?2 AND file_id = ?3";
        FILES_UPWARDS = "
            SELECT id, filename, purpose, media_type, bytes, created_at, expires_at FROM files
            WHERE tenant_id = ?1 AND user_id = ?2 AND id > ?3 AND (expires_at IS NULL OR expires_at > ?4)
            ORDER BY id LIMIT ?5";
        FILES_DOWNWARDS = "
            SELECT id, filename, purpose, media_type, bytes, created_at, expires_at FROM files
            WHERE tenant_id = ?1 AND user_id = ?2 AND id < ?3 AND (expires_at IS NULL OR expires_at > ?4)
            ORDER BY id DESC LIMIT ?5";
        FILES_OF_PURPOSE_UPWARDS = "
            SELECT id, filename, purpose, media_type, bytes, created_at, expires_at FROM files INDEXED BY files_by_purpose
            WHERE tenant_id = ?1 AND user_id = ?2 AND purpose = ?6 AND id > ?3 AND (expires_at IS NULL OR expires_at > ?4)
            ORDER BY id LIMIT ?5";
        FILES_OF_PURPOSE_DOWNWARDS = "
            SELECT id, filename, purpose, media_type, bytes, created_at, expires_at FROM files INDEXED BY files_by_purpose
            WHERE tenant_id = ?1 AND user_id = ?2 AND purpose = ?6 AND id < ?3 AND (expires_at IS NULL OR expires_at > ?4)
            ORDER BY id DESC LIMIT ?5";
        FORGET_FILE = "DELETE FROM files WHERE tenant_id = ?1 AND user_id = ?2 AND id = ?3";
        FORGET_CONTENT = "DELETE FROM file_contents WHERE tenant_id = ?1 AND user_id = ?2 AND file_id = ?3";
    }

    TenantSql {
        // Modes that a tenant has defined.
        MODES = "
            SELECT name, display_name, system_prompt, tools, rag_scope, created_at, updated_at, tool_choice FROM agent_modes
            WHERE tenant_id = ?1 ORDER BY key";
        PUT_MODE = "
            INSERT INTO agent_modes (tenant_id, key, name, display_name, system_prompt, tools, rag_scope, created_at,
                updated_at, tool_choice)
            VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)
            ON CONFLICT (tenant_id, key) DO UPDATE SET name = excluded.name, display_name = excluded.display_name,
                system_prompt = excluded.system_prompt, tools = excluded.tools, rag_scope = excluded.rag_scope,
                updated_at = excluded.updated_at, tool_choice = excluded.tool_choice";
        FORGET_MODE = "DELETE FROM agent_modes WHERE tenant_id = ?1 AND key = ?2";

        // How much a tenant has in files.
        BYTES_OF_FILES = "
            SELECT COALESCE(SUM(bytes), 0) FROM files
            WHERE tenant_id = ?1 AND (expires_at IS NULL OR expires_at > ?2)";
    }

    OperatorSql {
        // What can go.
        EXPIRED_FILES = "
            SELECT tenant_id, user_id, id FROM files WHERE expires_at < ?1 ORDER BY expires_at LIMIT ?2";

        // Everything.
        RESET_AGENT_SESSIONS = "DELETE FROM agent_sessions";
        RESET_AGENT_SESSIONS_OF = "DELETE FROM agent_sessions WHERE tenant_id = ?1";
        RESET_STEPS = "DELETE FROM agent_steps";
        RESET_STEPS_OF = "DELETE FROM agent_steps WHERE tenant_id = ?1";
        RESET_MODE_CHANGES = "DELETE FROM mode_changes";
        RESET_MODE_CHANGES_OF = "DELETE FROM mode_changes WHERE tenant_id = ?1";
        RESET_MODES = "DELETE FROM agent_modes";
        RESET_FILES = "DELETE FROM files";
        RESET_FILES_OF = "DELETE FROM files WHERE tenant_id = ?1";
        RESET_CONTENTS = "DELETE FROM file_contents";
        RESET_CONTENTS_OF = "DELETE FROM file_contents WHERE tenant_id = ?1";
    }
}
