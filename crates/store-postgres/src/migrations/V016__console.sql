-- The console: browser sessions, and the one-time links that open them. Tokens and keys are keyed hashes. Times are
-- milliseconds since 1970.

CREATE TABLE console_sessions (
    id text COLLATE "C" PRIMARY KEY,
    tenant_id bigint NOT NULL,
    hash bytea NOT NULL UNIQUE,
    -- Names with a space between them.
    rights text NOT NULL,
    key_id text,
    -- The session ends with the key that has this hash.
    key_hash bytea,
    sign_in text NOT NULL,
    browser text,
    address text,
    created_at bigint NOT NULL,
    last_used_at bigint NOT NULL,
    expires_at bigint NOT NULL
);
CREATE INDEX console_sessions_by_tenant ON console_sessions (tenant_id, id);

CREATE TABLE console_links (
    hash bytea PRIMARY KEY,
    tenant_id bigint NOT NULL,
    rights text NOT NULL,
    key_id text,
    key_hash bytea,
    expires_at bigint NOT NULL
);
