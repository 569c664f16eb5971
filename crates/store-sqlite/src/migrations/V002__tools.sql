-- The tool bank, the calls of tools, and the calls that wait for somebody to agree. Times are milliseconds since 1970.

-- Tenant 0 is the installation: its tools are for all tenants.
CREATE TABLE agent_tools (
    tenant_id INTEGER NOT NULL,
    -- The name in lower case: no two tools of a bank differ by case alone.
    key TEXT NOT NULL,
    name TEXT NOT NULL,
    kind TEXT NOT NULL,
    description TEXT NOT NULL,
    parameters TEXT NOT NULL,
    -- Secrets in it are sealed.
    settings TEXT NOT NULL,
    guidance TEXT,
    timeout_ms INTEGER NOT NULL,
    idempotent INTEGER NOT NULL,
    on_error TEXT NOT NULL,
    after_call_instruction TEXT,
    -- Who has to agree; empty for nobody.
    requires_approval TEXT,
    active INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    PRIMARY KEY (tenant_id, key)
) STRICT, WITHOUT ROWID;

-- Written before a tool runs and again when it is over. Without an output nobody knows what became of the call. What may be
-- long comes last, where those who only count do not have to read it.
CREATE TABLE tool_runs (
    id INTEGER PRIMARY KEY,
    tenant_id INTEGER NOT NULL,
    user_id TEXT NOT NULL,
    response_id TEXT NOT NULL,
    number INTEGER NOT NULL,
    label TEXT NOT NULL,
    name TEXT NOT NULL,
    item_id TEXT NOT NULL,
    call_id TEXT NOT NULL,
    idempotent INTEGER NOT NULL,
    started_at INTEGER NOT NULL,
    duration_ms INTEGER,
    error TEXT,
    detail TEXT,
    arguments TEXT NOT NULL,
    output TEXT
) STRICT;
CREATE UNIQUE INDEX tool_runs_by_response ON tool_runs (tenant_id, response_id, number);
CREATE INDEX tool_runs_by_tool ON tool_runs (tenant_id, label, name, started_at);
CREATE INDEX tool_runs_by_age ON tool_runs (started_at);

CREATE TABLE approvals (
    tenant_id INTEGER NOT NULL,
    id TEXT NOT NULL,
    user_id TEXT NOT NULL,
    response_id TEXT NOT NULL,
    call_id TEXT NOT NULL,
    label TEXT NOT NULL,
    name TEXT NOT NULL,
    arguments TEXT NOT NULL,
    decider TEXT NOT NULL,
    asked_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    -- Empty until somebody has decided, as are the next three.
    approve INTEGER,
    reason TEXT,
    decided_by TEXT,
    decided_at INTEGER,
    -- The response that has acted on it.
    used_by TEXT,
    PRIMARY KEY (tenant_id, id)
) STRICT, WITHOUT ROWID;
CREATE INDEX approvals_by_response ON approvals (tenant_id, response_id);
CREATE INDEX approvals_by_time ON approvals (tenant_id, asked_at, id);
CREATE INDEX approvals_pending ON approvals (tenant_id, asked_at, id) WHERE approve IS NULL;
CREATE INDEX approvals_by_end ON approvals (expires_at);
