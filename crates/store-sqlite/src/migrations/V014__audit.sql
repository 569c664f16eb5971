-- The audit: every change of the administration, append-only and chained by hash. Times are milliseconds since 1970; hashes are
-- BLOB, and what was changed is JSON as TEXT. Tenant 0 is the installation.

CREATE TABLE audit (
    number INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    at INTEGER NOT NULL,
    tenant_id INTEGER NOT NULL,
    actor TEXT NOT NULL,
    key_id TEXT,
    user_id TEXT,
    origin TEXT,
    action TEXT NOT NULL,
    object TEXT NOT NULL,
    object_id TEXT NOT NULL,
    before_change TEXT,
    after_change TEXT,
    previous BLOB NOT NULL,
    hash BLOB NOT NULL
) STRICT;
CREATE INDEX audit_by_tenant ON audit (tenant_id, number);

-- The end of the chain: shows that the last rows are missing.
CREATE TABLE audit_head (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    number INTEGER NOT NULL,
    hash BLOB NOT NULL
) STRICT;

-- A mistake of the server or of a person with a database shell must not change the past.
CREATE TRIGGER audit_is_not_updated BEFORE UPDATE ON audit BEGIN
    SELECT RAISE(ABORT, 'rows of the audit are never changed');
END;
CREATE TRIGGER audit_is_not_deleted BEFORE DELETE ON audit BEGIN
    SELECT RAISE(ABORT, 'rows of the audit are never deleted');
END;
