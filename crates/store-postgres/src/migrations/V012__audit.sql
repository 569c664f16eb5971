-- The audit: every change of the administration, append-only and chained by hash. Times are milliseconds since 1970. What was
-- changed is JSON as text, since the hash covers every byte. Tenant 0 is the installation.

CREATE TABLE audit (
    number bigint PRIMARY KEY,
    id text NOT NULL UNIQUE,
    at bigint NOT NULL,
    tenant_id bigint NOT NULL,
    actor text NOT NULL,
    key_id text,
    user_id text,
    origin text,
    action text NOT NULL,
    object text NOT NULL,
    object_id text NOT NULL,
    before_change text,
    after_change text,
    previous bytea NOT NULL,
    hash bytea NOT NULL
);
CREATE INDEX audit_by_tenant ON audit (tenant_id, number);

-- The end of the chain: shows that the last rows are missing.
CREATE TABLE audit_head (
    id bigint PRIMARY KEY CHECK (id = 1),
    number bigint NOT NULL,
    hash bytea NOT NULL
);

-- A mistake of the server or of a person with a database shell must not change the past.
CREATE OR REPLACE FUNCTION audit_is_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'rows of the audit are never changed or deleted';
END
$$;
CREATE TRIGGER audit_is_append_only BEFORE UPDATE OR DELETE ON audit
    FOR EACH ROW EXECUTE FUNCTION audit_is_append_only();
