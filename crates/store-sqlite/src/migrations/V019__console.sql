-- The console: browser sessions, and the one-time links that open them. Tokens and keys are keyed hashes, as BLOB. Times are
-- milliseconds since 1970.

CREATE TABLE console_sessions (
    id TEXT PRIMARY KEY,
    tenant_id INTEGER NOT NULL,
    hash BLOB NOT NULL UNIQUE,
    -- Names with a space between them.
    rights TEXT NOT NULL,
    key_id TEXT,
    -- The session ends with the key that has this hash.
    key_hash BLOB,
    sign_in TEXT NOT NULL,
    browser TEXT,
    address TEXT,
    created_at INTEGER NOT NULL,
    last_used_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX console_sessions_by_tenant ON console_sessions (tenant_id, id);

CREATE TABLE console_links (
    hash BLOB PRIMARY KEY,
    tenant_id INTEGER NOT NULL,
    rights TEXT NOT NULL,
    key_id TEXT,
    key_hash BLOB,
    expires_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
