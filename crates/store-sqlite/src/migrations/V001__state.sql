-- Times are milliseconds since 1970. JSON is TEXT; bodies, frames, hashes and ids of processes are BLOB.

-- Heads of responses. `number` is created_at << 20 and which of that millisecond it is: rows stand in the order of their
-- age, and whoever looks for old ones needs no index.
CREATE TABLE responses (
    number INTEGER PRIMARY KEY,
    tenant_id INTEGER NOT NULL,
    user_id TEXT NOT NULL,
    stem TEXT NOT NULL,
    id TEXT NOT NULL,
    chain TEXT NOT NULL,
    position INTEGER NOT NULL,
    status TEXT NOT NULL,
    background INTEGER NOT NULL,
    streamed INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    completed_at INTEGER,
    -- However it ended; empty where nobody said when.
    ended_at INTEGER,
    error TEXT,
    incomplete_reason TEXT,
    usage TEXT,
    conversation_id TEXT,
    -- Who runs it; empty while it waits and once it has ended.
    process BLOB,
    settings TEXT NOT NULL,
    -- The body that whoever takes it runs; empty once it has ended.
    request BLOB
) STRICT;
CREATE UNIQUE INDEX responses_by_stem ON responses (tenant_id, stem);
CREATE INDEX responses_with_events ON responses (created_at) WHERE streamed = 1;
CREATE INDEX responses_waiting ON responses (status) WHERE status = 'queued' AND process IS NULL;
CREATE INDEX responses_held ON responses (process) WHERE process IS NOT NULL;

-- What a response says, clustered so that a chain is one range of pages.
CREATE TABLE items (
    chain TEXT NOT NULL,
    position INTEGER NOT NULL,
    tenant_id INTEGER NOT NULL,
    user_id TEXT NOT NULL,
    response_id TEXT NOT NULL,
    -- Only at position 0 of a fork.
    parent_chain TEXT,
    parent_position INTEGER,
    -- 1: the head is gone, and others still build on this. 2: nobody does, and only the place is kept.
    forgotten INTEGER NOT NULL DEFAULT 0,
    input TEXT NOT NULL,
    output TEXT,
    PRIMARY KEY (chain, position)
) STRICT, WITHOUT ROWID;
CREATE INDEX items_of_forks ON items (parent_chain, parent_position) WHERE parent_chain IS NOT NULL;

CREATE TABLE stream_events (
    response_id TEXT NOT NULL,
    first INTEGER NOT NULL,
    last INTEGER NOT NULL,
    tenant_id INTEGER NOT NULL,
    user_id TEXT NOT NULL,
    frames BLOB NOT NULL,
    PRIMARY KEY (response_id, first)
) STRICT, WITHOUT ROWID;

CREATE TABLE transcripts (
    -- asked_at << 20 and which of that millisecond it is.
    id INTEGER PRIMARY KEY,
    tenant_id INTEGER NOT NULL,
    user_id TEXT NOT NULL,
    response_id TEXT NOT NULL,
    number INTEGER NOT NULL,
    upstream TEXT NOT NULL,
    model TEXT NOT NULL,
    asked_at INTEGER NOT NULL,
    first_token_ms INTEGER,
    duration_ms INTEGER NOT NULL,
    retries INTEGER NOT NULL,
    cut INTEGER NOT NULL,
    usage TEXT,
    -- An array of strings.
    losses TEXT,
    error TEXT,
    -- The whole body, or what follows the first base_shared bytes of another call's.
    request BLOB NOT NULL,
    response BLOB NOT NULL,
    base_response TEXT,
    base_number INTEGER,
    base_shared INTEGER
) STRICT;
CREATE UNIQUE INDEX transcripts_by_response ON transcripts (response_id, number);
CREATE INDEX transcripts_by_base ON transcripts (base_response, base_number) WHERE base_response IS NOT NULL;

CREATE TABLE idempotency (
    tenant_id INTEGER NOT NULL,
    user_id TEXT NOT NULL,
    route TEXT NOT NULL,
    key TEXT NOT NULL,
    body_hash BLOB NOT NULL,
    response_id TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    -- Who works on it; empty once it is answered.
    process BLOB,
    -- Without a status the answer is the stored response.
    answer_status INTEGER,
    answer_type TEXT,
    answer_body BLOB,
    PRIMARY KEY (tenant_id, user_id, route, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX idempotency_by_age ON idempotency (created_at) WHERE process IS NULL;
CREATE INDEX idempotency_held ON idempotency (process) WHERE process IS NOT NULL;

CREATE TABLE conversations (
    tenant_id INTEGER NOT NULL,
    id TEXT NOT NULL,
    user_id TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    metadata TEXT NOT NULL,
    PRIMARY KEY (tenant_id, id)
) STRICT, WITHOUT ROWID;

CREATE TABLE conversation_items (
    tenant_id INTEGER NOT NULL,
    conversation_id TEXT NOT NULL,
    position INTEGER NOT NULL,
    user_id TEXT NOT NULL,
    id TEXT NOT NULL,
    item TEXT NOT NULL,
    PRIMARY KEY (tenant_id, conversation_id, position)
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX conversation_items_by_id ON conversation_items (tenant_id, id, conversation_id);

CREATE TABLE tenants (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    state TEXT NOT NULL,
    ai_agent_enabled INTEGER NOT NULL,
    created_at INTEGER NOT NULL
) STRICT;

CREATE TABLE api_keys (
    id TEXT PRIMARY KEY,
    tenant_id INTEGER NOT NULL,
    hash BLOB NOT NULL UNIQUE,
    prefix TEXT NOT NULL,
    label TEXT,
    -- Names with a space between them.
    rights TEXT NOT NULL,
    user_id TEXT,
    created_at INTEGER NOT NULL,
    expires_at INTEGER,
    revoked_at INTEGER,
    last_used_at INTEGER
) STRICT, WITHOUT ROWID;
CREATE INDEX api_keys_by_tenant ON api_keys (tenant_id, id);

CREATE TABLE processes (
    id BLOB PRIMARY KEY,
    beat INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE memory (
    name TEXT PRIMARY KEY,
    text TEXT NOT NULL
) STRICT, WITHOUT ROWID;
