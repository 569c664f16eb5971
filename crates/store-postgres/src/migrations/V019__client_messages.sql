-- How many messages a user has sent with browser tokens on the latest day, in days since 1970 (UTC).

CREATE TABLE client_messages (
    tenant_id bigint NOT NULL,
    user_id text COLLATE "C" NOT NULL,
    day bigint NOT NULL,
    messages bigint NOT NULL,
    PRIMARY KEY (tenant_id, user_id)
);
