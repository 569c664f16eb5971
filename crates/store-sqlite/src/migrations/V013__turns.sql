-- Turns without their content, stored or not: lists and usage. Costs are billionths of a US dollar, empty where unknown.
CREATE TABLE turns (
    tenant_id INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    response_id TEXT NOT NULL,
    request_id TEXT,
    key_id TEXT,
    user_id TEXT NOT NULL,
    wire TEXT NOT NULL,
    session_id TEXT,
    profile TEXT,
    requested_model TEXT NOT NULL,
    upstream TEXT,
    model TEXT,
    status TEXT NOT NULL,
    error TEXT,
    -- Empty while the turn runs.
    ended_at INTEGER,
    first_token_ms INTEGER,
    input_tokens INTEGER NOT NULL,
    cached_input_tokens INTEGER NOT NULL,
    cache_write_tokens INTEGER NOT NULL,
    output_tokens INTEGER NOT NULL,
    reasoning_tokens INTEGER NOT NULL,
    cost INTEGER,
    calls INTEGER NOT NULL,
    retries INTEGER NOT NULL,
    losses INTEGER NOT NULL,
    -- Names of server-run tools, each between two line feeds.
    tools TEXT,
    stored INTEGER NOT NULL,
    PRIMARY KEY (tenant_id, created_at, response_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX turns_by_request ON turns (tenant_id, request_id) WHERE request_id IS NOT NULL;

-- Sums of ended turns by the hour of their creation (hours since 1970). A turn counts in the row of its last model call.
CREATE TABLE usage_hours (
    tenant_id INTEGER NOT NULL,
    hour INTEGER NOT NULL,
    key_id TEXT NOT NULL,
    user_id TEXT NOT NULL,
    wire TEXT NOT NULL,
    profile TEXT NOT NULL,
    upstream TEXT NOT NULL,
    model TEXT NOT NULL,
    turns INTEGER NOT NULL,
    failed_turns INTEGER NOT NULL,
    calls INTEGER NOT NULL,
    -- Calls with tokens whose price is unknown.
    unpriced_calls INTEGER NOT NULL,
    input_tokens INTEGER NOT NULL,
    cached_input_tokens INTEGER NOT NULL,
    cache_write_tokens INTEGER NOT NULL,
    output_tokens INTEGER NOT NULL,
    reasoning_tokens INTEGER NOT NULL,
    cost INTEGER NOT NULL,
    PRIMARY KEY (tenant_id, hour, key_id, user_id, wire, profile, upstream, model)
) STRICT, WITHOUT ROWID;
