-- What can be looked up: collections of documents in pieces, and the words that they are found by. Times are milliseconds
-- since 1970.

-- `documents` and `chunks` say how many there are, so that nobody has to count them.
CREATE TABLE knowledge_collections (
    number          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant_id       bigint NOT NULL,
    name            text COLLATE "C" NOT NULL,
    embedding_model text,
    documents       bigint NOT NULL,
    chunks          bigint NOT NULL,
    created_at      bigint NOT NULL,
    updated_at      bigint NOT NULL,
    UNIQUE (tenant_id, name)
) WITH (fillfactor = 50);

-- A document that is brought in anew is a new one: its number is never used again. `attributes` is an array of names and
-- values, one after the other.
CREATE TABLE knowledge_documents (
    number     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant_id  bigint NOT NULL,
    collection bigint NOT NULL,
    source     text COLLATE "C" NOT NULL,
    path       text COLLATE "C" NOT NULL,
    language   text NOT NULL,
    attributes text NOT NULL,
    digest     bytea NOT NULL,
    chunks     bigint NOT NULL,
    updated_at bigint NOT NULL
);
CREATE UNIQUE INDEX knowledge_documents_by_path ON knowledge_documents (collection, source, path);

-- The number of a piece is that of its document times 65536, and its place in it. `terms` says how often it has which word.
CREATE TABLE knowledge_chunks (
    number     bigint PRIMARY KEY,
    tenant_id  bigint NOT NULL,
    symbol     text,
    start_line bigint NOT NULL,
    end_line   bigint NOT NULL,
    terms      bytea NOT NULL,
    content    text NOT NULL
);

-- Numbers of four bytes, the lowest first.
CREATE TABLE knowledge_embeddings (
    collection bigint NOT NULL,
    chunk      bigint NOT NULL,
    tenant_id  bigint NOT NULL,
    embedding  bytea NOT NULL,
    PRIMARY KEY (collection, chunk)
);

-- The words of pieces as they are searched for. Every word has the number of its tenant in it, so that what others have is
-- neither found nor walked through. A search must not have to read through what is still to be put in its place in the
-- index, so that this is done at once.
CREATE TABLE knowledge_words (
    chunk     bigint PRIMARY KEY,
    tenant_id bigint NOT NULL,
    words     tsvector NOT NULL
);
CREATE INDEX knowledge_words_by_word ON knowledge_words USING gin (words) WITH (fastupdate = off);
