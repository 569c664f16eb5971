-- Turns without their content, stored or not: lists and usage. Costs are billionths of a US dollar, empty where unknown.
CREATE TABLE turns (
    tenant_id bigint NOT NULL,
    created_at bigint NOT NULL,
    response_id text NOT NULL,
    request_id text,
    key_id text,
    user_id text NOT NULL,
    wire text NOT NULL,
    session_id text,
    profile text,
    requested_model text NOT NULL,
    upstream text,
    model text,
    status text NOT NULL,
    error text,
    -- Empty while the turn runs.
    ended_at bigint,
    first_token_ms bigint,
    input_tokens bigint NOT NULL,
    cached_input_tokens bigint NOT NULL,
    cache_write_tokens bigint NOT NULL,
    output_tokens bigint NOT NULL,
    reasoning_tokens bigint NOT NULL,
    cost bigint,
    calls bigint NOT NULL,
    retries bigint NOT NULL,
    losses bigint NOT NULL,
    -- Names of server-run tools, each between two line feeds.
    tools text,
    stored boolean NOT NULL,
    PRIMARY KEY (tenant_id, created_at, response_id)
);
CREATE INDEX turns_by_request ON turns (tenant_id, request_id) WHERE request_id IS NOT NULL;

-- Sums of ended turns by the hour of their creation (hours since 1970). A turn counts in the row of its last model call.
CREATE TABLE usage_hours (
    tenant_id bigint NOT NULL,
    hour bigint NOT NULL,
    key_id text NOT NULL,
    user_id text NOT NULL,
    wire text NOT NULL,
    profile text NOT NULL,
    upstream text NOT NULL,
    model text NOT NULL,
    turns bigint NOT NULL,
    failed_turns bigint NOT NULL,
    calls bigint NOT NULL,
    -- Calls with tokens whose price is unknown.
    unpriced_calls bigint NOT NULL,
    input_tokens bigint NOT NULL,
    cached_input_tokens bigint NOT NULL,
    cache_write_tokens bigint NOT NULL,
    output_tokens bigint NOT NULL,
    reasoning_tokens bigint NOT NULL,
    cost bigint NOT NULL,
    PRIMARY KEY (tenant_id, hour, key_id, user_id, wire, profile, upstream, model)
);
