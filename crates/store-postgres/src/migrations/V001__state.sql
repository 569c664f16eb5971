-- Tenants and keys, responses and their items, conversations, requests that are done once, model calls, events of
-- streams, processes. Times are milliseconds since 1970. Ids are compared byte by byte: their order is not a language's.

CREATE TABLE tenants (
    id               bigint PRIMARY KEY,
    name             text NOT NULL,
    state            text NOT NULL,
    ai_agent_enabled boolean NOT NULL,
    created_at       bigint NOT NULL
);

CREATE TABLE api_keys (
    id           text COLLATE "C" PRIMARY KEY,
    tenant_id    bigint NOT NULL REFERENCES tenants (id) ON DELETE CASCADE,
    hash         bytea NOT NULL UNIQUE,
    prefix       text NOT NULL,
    label        text,
    rights       text NOT NULL,
    user_id      text,
    created_at   bigint NOT NULL,
    expires_at   bigint,
    revoked_at   bigint,
    last_used_at bigint
);
CREATE INDEX api_keys_of_tenant ON api_keys (tenant_id, id);

-- The head of a response. Its items are at (chain, position) of `items`. `process` is who runs it: null while it waits
-- and once it has ended. `mark` is drawn anew for every write, so that a commit whose answer was lost can be told.
-- `number` is the order in which they came into being; `streamed` is true until their frames are pruned.
CREATE TABLE responses (
    number            bigint GENERATED ALWAYS AS IDENTITY,
    tenant_id         bigint NOT NULL,
    user_id           text COLLATE "C" NOT NULL,
    stem              text COLLATE "C" NOT NULL,
    id                text COLLATE "C" NOT NULL,
    chain             text COLLATE "C" NOT NULL,
    position          bigint NOT NULL,
    status            text COLLATE "C" NOT NULL,
    background        boolean NOT NULL,
    streamed          boolean NOT NULL,
    created_at        bigint NOT NULL,
    completed_at      bigint,
    ended_at          bigint,
    error             text,
    incomplete_reason text,
    usage             text,
    settings          bytea NOT NULL,
    conversation_id   text COLLATE "C",
    process           bytea,
    request           bytea,
    mark              bigint NOT NULL,
    PRIMARY KEY (tenant_id, stem, id)
) WITH (fillfactor = 80);
CREATE INDEX responses_of_process ON responses (process) WHERE process IS NOT NULL;
CREATE INDEX responses_waiting ON responses (number) WHERE status = 'queued' AND process IS NULL;
CREATE INDEX responses_with_events ON responses (created_at) WHERE streamed;
CREATE INDEX responses_by_age ON responses USING brin (created_at);

-- The items of a response, as ready JSON arrays. A run of rows is one chain; a fork begins a run of its own and points
-- at the place that it continues. `gone` says that the response was deleted and its items are here only for others.
CREATE TABLE items (
    chain           text COLLATE "C" NOT NULL,
    position        bigint NOT NULL,
    tenant_id       bigint NOT NULL,
    user_id         text COLLATE "C" NOT NULL,
    response_id     text COLLATE "C" NOT NULL,
    input           text NOT NULL,
    output          text,
    parent_chain    text COLLATE "C",
    parent_position bigint,
    gone            boolean NOT NULL DEFAULT false,
    PRIMARY KEY (chain, position)
) WITH (fillfactor = 90);
CREATE INDEX items_forks ON items (parent_chain, parent_position) WHERE parent_chain IS NOT NULL;

CREATE TABLE conversations (
    tenant_id     bigint NOT NULL,
    user_id       text COLLATE "C" NOT NULL,
    id            text COLLATE "C" NOT NULL,
    created_at    bigint NOT NULL,
    metadata      text NOT NULL,
    next_position bigint NOT NULL,
    PRIMARY KEY (tenant_id, user_id, id)
) WITH (fillfactor = 80);

CREATE TABLE conversation_items (
    tenant_id       bigint NOT NULL,
    user_id         text COLLATE "C" NOT NULL,
    conversation_id text COLLATE "C" NOT NULL,
    position        bigint NOT NULL,
    id              text COLLATE "C" NOT NULL,
    item            text NOT NULL,
    PRIMARY KEY (tenant_id, user_id, conversation_id, position)
);
-- By item first: an item is also asked for without its conversation.
CREATE UNIQUE INDEX conversation_items_by_id ON conversation_items (tenant_id, user_id, id, conversation_id);

-- Requests that are done once. `process` is who works on it: null once it is answered. Without a status the answer is
-- the stored response.
CREATE TABLE idempotency (
    tenant_id    bigint NOT NULL,
    user_id      text COLLATE "C" NOT NULL,
    route        text COLLATE "C" NOT NULL,
    key          text COLLATE "C" NOT NULL,
    body_hash    bytea NOT NULL,
    response_id  text COLLATE "C" NOT NULL,
    process      bytea,
    created_at   bigint NOT NULL,
    status       integer,
    content_type text,
    body         bytea,
    PRIMARY KEY (tenant_id, user_id, route, key)
) WITH (fillfactor = 80);
CREATE INDEX idempotency_of_process ON idempotency (process) WHERE process IS NOT NULL;
CREATE INDEX idempotency_by_age ON idempotency USING brin (created_at);

-- Calls of models. `request` is the whole body, or what follows the first `base_shared` bytes of another call's.
CREATE TABLE transcripts (
    tenant_id      bigint NOT NULL,
    user_id        text COLLATE "C" NOT NULL,
    response_id    text COLLATE "C" NOT NULL,
    number         bigint NOT NULL,
    upstream       text NOT NULL,
    model          text NOT NULL,
    asked_at       bigint NOT NULL,
    first_token_ms bigint,
    duration_ms    bigint NOT NULL,
    retries        bigint NOT NULL,
    request        bytea NOT NULL,
    response       bytea NOT NULL,
    cut            boolean NOT NULL,
    usage          text,
    losses         text,
    error          text,
    base_response  text COLLATE "C",
    base_number    bigint,
    base_shared    bigint,
    PRIMARY KEY (tenant_id, response_id, number)
);
CREATE INDEX transcripts_by_base ON transcripts (tenant_id, base_response, base_number) WHERE base_response IS NOT NULL;
CREATE INDEX transcripts_by_age ON transcripts USING brin (asked_at);

-- Whole frames, by the number of the last one: what comes behind a number is one range.
CREATE TABLE stream_events (
    tenant_id   bigint NOT NULL,
    user_id     text COLLATE "C" NOT NULL,
    response_id text COLLATE "C" NOT NULL,
    first       bigint NOT NULL,
    last        bigint NOT NULL,
    frames      bytea NOT NULL,
    PRIMARY KEY (tenant_id, response_id, last)
);

CREATE TABLE processes (
    id   bytea PRIMARY KEY,
    beat bigint NOT NULL
);

CREATE TABLE memory (
    name text COLLATE "C" PRIMARY KEY,
    text text NOT NULL
);
