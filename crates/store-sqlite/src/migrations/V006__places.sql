-- Items are found by one number, their place, and not by the text of a chain and a position. A table that is sorted by text keeps
-- whole rows in its inner pages too: with rows of a kilobyte it was five pages deep after forty thousand of them, and every new
-- row changed two pages more than it had to.

CREATE TABLE runs (run INTEGER PRIMARY KEY, chain TEXT NOT NULL UNIQUE) STRICT;
INSERT INTO runs (chain) SELECT DISTINCT chain FROM items ORDER BY chain;

CREATE TABLE places (
    -- run << 20 | position. A chain is one range of pages, and a new one goes behind all others.
    place INTEGER PRIMARY KEY,
    tenant_id INTEGER NOT NULL,
    user_id TEXT NOT NULL,
    response_id TEXT NOT NULL,
    -- The place that a fork continues; only at the beginning of its run.
    parent INTEGER,
    -- 1: the head is gone, and others still build on this. 2: nobody does, and only the place is kept.
    forgotten INTEGER NOT NULL DEFAULT 0,
    input TEXT NOT NULL,
    output TEXT
) STRICT;
INSERT INTO places (place, tenant_id, user_id, response_id, parent, forgotten, input, output)
SELECT (own.run << 20) + position, tenant_id, user_id, response_id, (earlier.run << 20) + parent_position, forgotten, input, output
FROM items JOIN runs AS own ON own.chain = items.chain LEFT JOIN runs AS earlier ON earlier.chain = parent_chain
ORDER BY own.run, position;

CREATE TABLE heads (
    -- created_at << 20 and which of its time it is.
    number INTEGER PRIMARY KEY,
    tenant_id INTEGER NOT NULL,
    user_id TEXT NOT NULL,
    stem TEXT NOT NULL,
    id TEXT NOT NULL,
    -- Where its items are.
    place INTEGER NOT NULL,
    status TEXT NOT NULL,
    background INTEGER NOT NULL,
    streamed INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    completed_at INTEGER,
    -- However it ended; empty where nobody said when.
    ended_at INTEGER,
    error TEXT,
    incomplete_reason TEXT,
    usage TEXT,
    conversation_id TEXT,
    -- Who runs it; empty while it waits and once it has ended.
    process BLOB,
    -- What an upstream that keeps state itself calls its last answer: an object.
    upstream TEXT,
    settings TEXT NOT NULL,
    -- The body that whoever takes it runs; empty once it has ended.
    request BLOB
) STRICT;
INSERT INTO heads (number, tenant_id, user_id, stem, id, place, status, background, streamed, created_at, completed_at, ended_at,
    error, incomplete_reason, usage, conversation_id, process, upstream, settings, request)
SELECT number, tenant_id, user_id, stem, id, (run << 20) + position, status, background, streamed, created_at, completed_at, ended_at,
    error, incomplete_reason, usage, conversation_id, process, upstream, settings, request
FROM responses JOIN runs ON runs.chain = responses.chain
ORDER BY number;

DROP TABLE responses;
DROP TABLE items;
DROP TABLE runs;
ALTER TABLE heads RENAME TO responses;
ALTER TABLE places RENAME TO items;
CREATE UNIQUE INDEX responses_by_stem ON responses (tenant_id, stem);
CREATE INDEX responses_with_events ON responses (created_at) WHERE streamed = 1;
CREATE INDEX responses_waiting ON responses (status) WHERE status = 'queued' AND process IS NULL;
CREATE INDEX responses_held ON responses (process) WHERE process IS NOT NULL;
CREATE INDEX items_of_forks ON items (parent) WHERE parent IS NOT NULL;
