-- The strict contract: sessions, the steps of their turns, their modes; and files that callers have uploaded. Times are
-- milliseconds since 1970. JSON is TEXT; contents, fingerprints and ids of processes are BLOB.

CREATE TABLE agent_sessions (
    tenant_id INTEGER NOT NULL,
    user_id TEXT NOT NULL,
    id TEXT NOT NULL,
    profile TEXT,
    mode TEXT NOT NULL,
    solution_context TEXT,
    -- How many there are, so that nobody has to count them.
    turns INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    PRIMARY KEY (tenant_id, user_id, id)
) STRICT, WITHOUT ROWID;

-- One row for each submission that was taken. A turn is the rows with its number; the first of them, number 1, is the user's.
-- How a step stands is how its response stands.
CREATE TABLE agent_steps (
    tenant_id INTEGER NOT NULL,
    user_id TEXT NOT NULL,
    session_id TEXT NOT NULL,
    -- The turn's place in the session. One that is taken again moves behind the others.
    turn INTEGER NOT NULL,
    step INTEGER NOT NULL,
    turn_id TEXT NOT NULL,
    fingerprint BLOB NOT NULL,
    response_id TEXT NOT NULL,
    mode TEXT NOT NULL,
    notes TEXT NOT NULL,
    -- Who took it: while there is no response, it is worked on for as long as that process lives. Empty once its response
    -- was deleted.
    process BLOB,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (tenant_id, user_id, session_id, turn, step)
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX agent_steps_by_turn ON agent_steps (tenant_id, user_id, session_id, turn_id, step);
CREATE INDEX agent_steps_by_response ON agent_steps (tenant_id, user_id, response_id, session_id);

CREATE TABLE mode_changes (
    tenant_id INTEGER NOT NULL,
    user_id TEXT NOT NULL,
    session_id TEXT NOT NULL,
    number INTEGER NOT NULL,
    previous TEXT NOT NULL,
    mode TEXT NOT NULL,
    reason TEXT NOT NULL,
    turn_id TEXT NOT NULL,
    at INTEGER NOT NULL,
    PRIMARY KEY (tenant_id, user_id, session_id, number)
) STRICT, WITHOUT ROWID;

CREATE TABLE agent_modes (
    tenant_id INTEGER NOT NULL,
    -- The name in small letters: no two differ by case alone.
    key TEXT NOT NULL,
    name TEXT NOT NULL,
    display_name TEXT NOT NULL,
    system_prompt TEXT NOT NULL,
    -- An array of names.
    tools TEXT NOT NULL,
    -- An array of conditions.
    rag_scope TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    PRIMARY KEY (tenant_id, key)
) STRICT, WITHOUT ROWID;

CREATE TABLE files (
    tenant_id INTEGER NOT NULL,
    user_id TEXT NOT NULL,
    id TEXT NOT NULL,
    filename TEXT NOT NULL,
    purpose TEXT NOT NULL,
    media_type TEXT NOT NULL,
    bytes INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    expires_at INTEGER,
    PRIMARY KEY (tenant_id, user_id, id)
) STRICT, WITHOUT ROWID;
CREATE INDEX files_by_purpose ON files (tenant_id, user_id, purpose, id);
CREATE INDEX files_by_end ON files (expires_at) WHERE expires_at IS NOT NULL;
-- What a tenant has in all is counted here alone.
CREATE INDEX files_by_size ON files (tenant_id, expires_at, bytes);

-- Apart, so that whoever lists files reads none of it.
CREATE TABLE file_contents (
    number INTEGER PRIMARY KEY,
    tenant_id INTEGER NOT NULL,
    user_id TEXT NOT NULL,
    file_id TEXT NOT NULL,
    content BLOB NOT NULL
) STRICT;
CREATE UNIQUE INDEX file_contents_by_file ON file_contents (tenant_id, user_id, file_id);

-- What an upstream that keeps state itself calls the last answer of a response: an object.
ALTER TABLE responses ADD COLUMN upstream TEXT;
