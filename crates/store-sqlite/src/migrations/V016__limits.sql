-- Limits of tenants, keys, users and models with their counters, the reservations of running turns and model calls, and imported
-- prices. Times are milliseconds since 1970.

CREATE TABLE limits (
    -- tenants, keys, users or models.
    kind TEXT NOT NULL,
    -- 0 for models.
    tenant_id INTEGER NOT NULL,
    id TEXT NOT NULL,
    -- Made with the row: reservations of an earlier row of the same name do not change this one.
    generation INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    requests_per_minute INTEGER,
    tokens_per_minute INTEGER,
    max_in_flight INTEGER,
    -- Tokens, or billionths of a US dollar.
    budget_amount INTEGER,
    budget_unit TEXT,
    budget_period TEXT,
    -- Names, one a line.
    models TEXT,
    tools TEXT,
    -- What is used and reserved in the minute (minutes since 1970) and the period (days or months since 1970).
    minute INTEGER NOT NULL,
    requests INTEGER NOT NULL,
    tokens INTEGER NOT NULL,
    tokens_reserved INTEGER NOT NULL,
    in_flight INTEGER NOT NULL,
    period INTEGER NOT NULL,
    epoch INTEGER NOT NULL,
    spent INTEGER NOT NULL,
    spent_reserved INTEGER NOT NULL,
    -- The highest threshold that was announced, in per cent.
    alerted INTEGER NOT NULL,
    PRIMARY KEY (kind, tenant_id, id)
) STRICT, WITHOUT ROWID;

-- What a running turn or model call has reserved of one limit. The row is deleted when the hold is settled.
CREATE TABLE limit_holds (
    hold_id TEXT NOT NULL,
    kind TEXT NOT NULL,
    tenant_id INTEGER NOT NULL,
    id TEXT NOT NULL,
    generation INTEGER NOT NULL,
    process BLOB NOT NULL,
    turn INTEGER NOT NULL,
    call INTEGER NOT NULL,
    minute INTEGER NOT NULL,
    tokens INTEGER NOT NULL,
    period INTEGER NOT NULL,
    epoch INTEGER NOT NULL,
    amount INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (hold_id, kind, tenant_id, id)
) STRICT, WITHOUT ROWID;
CREATE INDEX limit_holds_by_process ON limit_holds (process);

-- USD per million tokens, as the text of a number.
CREATE TABLE model_prices (
    model TEXT PRIMARY KEY,
    input TEXT NOT NULL,
    cached_input TEXT,
    cache_write TEXT,
    output TEXT NOT NULL,
    reasoning TEXT,
    imported_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
