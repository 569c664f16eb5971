-- Limits of tenants, keys, users and models with their counters, the reservations of running turns and model calls, and imported
-- prices. Times are milliseconds since 1970.

CREATE TABLE limits (
    -- tenants, keys, users or models.
    kind text COLLATE "C" NOT NULL,
    -- 0 for models.
    tenant_id bigint NOT NULL,
    id text COLLATE "C" NOT NULL,
    -- Made with the row: reservations of an earlier row of the same name do not change this one.
    generation bigint NOT NULL,
    updated_at bigint NOT NULL,
    requests_per_minute bigint,
    tokens_per_minute bigint,
    max_in_flight bigint,
    -- Tokens, or billionths of a US dollar.
    budget_amount bigint,
    budget_unit text,
    budget_period text,
    -- Names, one a line.
    models text,
    tools text,
    -- What is used and reserved in the minute (minutes since 1970) and the period (days or months since 1970).
    minute bigint NOT NULL,
    requests bigint NOT NULL,
    tokens bigint NOT NULL,
    tokens_reserved bigint NOT NULL,
    in_flight bigint NOT NULL,
    period bigint NOT NULL,
    epoch bigint NOT NULL,
    spent bigint NOT NULL,
    spent_reserved bigint NOT NULL,
    -- The highest threshold that was announced, in per cent.
    alerted bigint NOT NULL,
    PRIMARY KEY (kind, tenant_id, id)
) WITH (fillfactor = 50);

-- What a running turn or model call has reserved of one limit. The row is deleted when the hold is settled.
CREATE TABLE limit_holds (
    hold_id text COLLATE "C" NOT NULL,
    kind text COLLATE "C" NOT NULL,
    tenant_id bigint NOT NULL,
    id text COLLATE "C" NOT NULL,
    generation bigint NOT NULL,
    process bytea NOT NULL,
    turn boolean NOT NULL,
    call boolean NOT NULL,
    minute bigint NOT NULL,
    tokens bigint NOT NULL,
    period bigint NOT NULL,
    epoch bigint NOT NULL,
    amount bigint NOT NULL,
    created_at bigint NOT NULL,
    PRIMARY KEY (hold_id, kind, tenant_id, id)
);
CREATE INDEX limit_holds_by_process ON limit_holds (process);

-- USD per million tokens, as the text of a number.
CREATE TABLE model_prices (
    model text COLLATE "C" PRIMARY KEY,
    input text NOT NULL,
    cached_input text,
    cache_write text,
    output text NOT NULL,
    reasoning text,
    imported_at bigint NOT NULL
);
