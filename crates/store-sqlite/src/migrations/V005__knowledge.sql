-- What can be looked up: collections of documents in pieces, and the words that they are found by. Times are milliseconds
-- since 1970. JSON is TEXT.

CREATE TABLE knowledge_collections (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    tenant_id INTEGER NOT NULL,
    name TEXT NOT NULL,
    embedding_model TEXT,
    -- How many there are, so that nobody has to count them.
    documents INTEGER NOT NULL,
    chunks INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX knowledge_collections_by_name ON knowledge_collections (tenant_id, name);

-- A document that is brought in anew is a new one: its number is never used again.
CREATE TABLE knowledge_documents (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    tenant_id INTEGER NOT NULL,
    collection INTEGER NOT NULL,
    source TEXT NOT NULL,
    path TEXT NOT NULL,
    language TEXT NOT NULL,
    -- An array of names and values, one after the other.
    attributes TEXT NOT NULL,
    digest BLOB NOT NULL,
    chunks INTEGER NOT NULL,
    updated_at INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX knowledge_documents_by_path ON knowledge_documents (collection, source, path);

-- The number of a piece is that of its document times 65536, and its place in it.
CREATE TABLE knowledge_chunks (
    number INTEGER PRIMARY KEY,
    tenant_id INTEGER NOT NULL,
    symbol TEXT,
    start_line INTEGER NOT NULL,
    end_line INTEGER NOT NULL,
    -- How often it has which word.
    terms BLOB NOT NULL,
    content TEXT NOT NULL
) STRICT;

CREATE TABLE knowledge_embeddings (
    collection INTEGER NOT NULL,
    chunk INTEGER NOT NULL,
    tenant_id INTEGER NOT NULL,
    -- Numbers of four bytes, the lowest first.
    embedding BLOB NOT NULL,
    PRIMARY KEY (collection, chunk)
) STRICT, WITHOUT ROWID;

-- The words of pieces as they are searched for, by `knowledge_chunks.number`. Every word has the number of its tenant in it,
-- so that what others have is neither found nor walked through. Only spaces separate words.
CREATE VIRTUAL TABLE knowledge_words USING fts5 (
    words, content = '', contentless_delete = 1, detail = none, tokenize = 'ascii tokenchars '':?='''
);
