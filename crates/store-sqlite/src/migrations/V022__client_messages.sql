-- How many messages a user has sent with browser tokens on the latest day, in days since 1970 (UTC).

CREATE TABLE client_messages (
    tenant_id INTEGER NOT NULL,
    user_id TEXT NOT NULL,
    day INTEGER NOT NULL,
    messages INTEGER NOT NULL,
    PRIMARY KEY (tenant_id, user_id)
) STRICT, WITHOUT ROWID;
