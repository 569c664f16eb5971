-- The strict contract: sessions, the steps of their turns, their modes; and files that callers have uploaded. Times are
-- milliseconds since 1970.

-- `turns` says how many there are, so that nobody has to count them. Who takes a step holds the session's row.
CREATE TABLE agent_sessions (
    tenant_id        bigint NOT NULL,
    user_id          text COLLATE "C" NOT NULL,
    id               text COLLATE "C" NOT NULL,
    profile          text COLLATE "C",
    mode             text NOT NULL,
    solution_context text,
    turns            bigint NOT NULL,
    created_at       bigint NOT NULL,
    updated_at       bigint NOT NULL,
    PRIMARY KEY (tenant_id, user_id, id)
) WITH (fillfactor = 80);

-- One row for each submission that was taken. A turn is the rows with its number, its place in the session; one that is taken
-- again moves behind the others. The first row of a turn, number 1, is the user's. How a step stands is how its response
-- stands. `process` is who took it: while there is no response, it is worked on for as long as that process lives; null once
-- the response was deleted.
CREATE TABLE agent_steps (
    tenant_id   bigint NOT NULL,
    user_id     text COLLATE "C" NOT NULL,
    session_id  text COLLATE "C" NOT NULL,
    turn        bigint NOT NULL,
    step        bigint NOT NULL,
    turn_id     text COLLATE "C" NOT NULL,
    fingerprint bytea NOT NULL,
    response_id text COLLATE "C" NOT NULL,
    mode        text NOT NULL,
    notes       text NOT NULL,
    process     bytea,
    created_at  bigint NOT NULL,
    PRIMARY KEY (tenant_id, user_id, session_id, turn, step)
);
CREATE UNIQUE INDEX agent_steps_by_turn ON agent_steps (tenant_id, user_id, session_id, turn_id, step);
CREATE INDEX agent_steps_by_response ON agent_steps (response_id, session_id);

CREATE TABLE mode_changes (
    tenant_id  bigint NOT NULL,
    user_id    text COLLATE "C" NOT NULL,
    session_id text COLLATE "C" NOT NULL,
    number     bigint NOT NULL,
    previous   text NOT NULL,
    mode       text NOT NULL,
    reason     text NOT NULL,
    turn_id    text NOT NULL,
    at         bigint NOT NULL,
    PRIMARY KEY (tenant_id, user_id, session_id, number)
);

-- `key` is the name in small letters: no two differ by case alone. `tools` is an array of names, `rag_scope` one of
-- conditions.
CREATE TABLE agent_modes (
    tenant_id     bigint NOT NULL,
    key           text COLLATE "C" NOT NULL,
    name          text NOT NULL,
    display_name  text NOT NULL,
    system_prompt text NOT NULL,
    tools         text NOT NULL,
    rag_scope     text NOT NULL,
    created_at    bigint NOT NULL,
    updated_at    bigint NOT NULL,
    PRIMARY KEY (tenant_id, key)
);

CREATE TABLE files (
    tenant_id  bigint NOT NULL,
    user_id    text COLLATE "C" NOT NULL,
    id         text COLLATE "C" NOT NULL,
    filename   text NOT NULL,
    purpose    text COLLATE "C" NOT NULL,
    media_type text NOT NULL,
    bytes      bigint NOT NULL,
    created_at bigint NOT NULL,
    expires_at bigint,
    PRIMARY KEY (tenant_id, user_id, id)
);
CREATE INDEX files_by_purpose ON files (tenant_id, user_id, purpose, id);
CREATE INDEX files_by_end ON files (expires_at) WHERE expires_at IS NOT NULL;
-- What a tenant has in all is counted here alone.
CREATE INDEX files_by_size ON files (tenant_id, expires_at, bytes);

-- Apart, so that whoever lists files reads none of it. Not compressed: most files are already.
CREATE TABLE file_contents (
    tenant_id bigint NOT NULL,
    user_id   text COLLATE "C" NOT NULL,
    file_id   text COLLATE "C" NOT NULL,
    content   bytea NOT NULL,
    PRIMARY KEY (tenant_id, user_id, file_id)
);
ALTER TABLE file_contents ALTER COLUMN content SET STORAGE EXTERNAL;

-- What an upstream that keeps state itself calls the last answer of a response: an object.
ALTER TABLE responses ADD COLUMN upstream text;
