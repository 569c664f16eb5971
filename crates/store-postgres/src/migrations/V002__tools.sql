-- The tool bank, the calls of tools, and the calls that wait for somebody to agree. Times are milliseconds since 1970.

-- Tenant 0 is the installation: its tools are for all tenants. `key` is the name in lower case: no two tools of a bank
-- differ by case alone. Secrets in `settings` are sealed. `requires_approval` is who has to agree: null for nobody.
CREATE TABLE agent_tools (
    tenant_id              bigint NOT NULL,
    key                    text COLLATE "C" NOT NULL,
    name                   text NOT NULL,
    kind                   text NOT NULL,
    description            text NOT NULL,
    parameters             text NOT NULL,
    settings               text NOT NULL,
    guidance               text,
    timeout_ms             bigint NOT NULL,
    idempotent             boolean NOT NULL,
    on_error               text NOT NULL,
    after_call_instruction text,
    requires_approval      text,
    active                 boolean NOT NULL,
    created_at             bigint NOT NULL,
    updated_at             bigint NOT NULL,
    PRIMARY KEY (tenant_id, key)
);

-- Written before a tool runs and again when it is over. Without an output nobody knows what became of the call. No column
-- that the second write changes is in an index.
CREATE TABLE tool_runs (
    tenant_id   bigint NOT NULL,
    user_id     text COLLATE "C" NOT NULL,
    response_id text COLLATE "C" NOT NULL,
    number      bigint NOT NULL,
    label       text COLLATE "C" NOT NULL,
    name        text COLLATE "C" NOT NULL,
    item_id     text NOT NULL,
    call_id     text NOT NULL,
    idempotent  boolean NOT NULL,
    started_at  bigint NOT NULL,
    duration_ms bigint,
    error       text,
    detail      text,
    arguments   text NOT NULL,
    output      text,
    PRIMARY KEY (tenant_id, response_id, number)
) WITH (fillfactor = 80);
CREATE INDEX tool_runs_by_tool ON tool_runs (tenant_id, label, name, started_at);
CREATE INDEX tool_runs_by_age ON tool_runs USING brin (started_at);

-- `approve` is null until somebody has decided, as are the three behind it. `used_by` is the response that has acted on it.
CREATE TABLE approvals (
    tenant_id   bigint NOT NULL,
    id          text COLLATE "C" NOT NULL,
    user_id     text COLLATE "C" NOT NULL,
    response_id text COLLATE "C" NOT NULL,
    call_id     text NOT NULL,
    label       text NOT NULL,
    name        text NOT NULL,
    arguments   text NOT NULL,
    decider     text NOT NULL,
    asked_at    bigint NOT NULL,
    expires_at  bigint NOT NULL,
    approve     boolean,
    reason      text,
    decided_by  text,
    decided_at  bigint,
    used_by     text,
    PRIMARY KEY (tenant_id, id)
) WITH (fillfactor = 80);
CREATE INDEX approvals_by_response ON approvals (tenant_id, response_id);
CREATE INDEX approvals_by_time ON approvals (tenant_id, asked_at, id);
CREATE INDEX approvals_pending ON approvals (tenant_id, asked_at, id) WHERE approve IS NULL;
CREATE INDEX approvals_by_end ON approvals (expires_at);
