-- The assistants of tenants: settings, profiles, threads and their messages, the catalogue of courses. Times are
-- milliseconds since 1970. JSON is TEXT.

CREATE TABLE agent_configs (
    tenant_id INTEGER PRIMARY KEY,
    -- What is set, as an object.
    settings TEXT NOT NULL,
    -- Sealed.
    api_key TEXT,
    revision INTEGER NOT NULL,
    updated_at INTEGER NOT NULL
) STRICT;

CREATE TABLE agent_profiles (
    tenant_id INTEGER NOT NULL,
    slug TEXT NOT NULL,
    prompt TEXT NOT NULL,
    -- An array of names.
    tools TEXT NOT NULL,
    model TEXT,
    active INTEGER NOT NULL,
    version INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    PRIMARY KEY (tenant_id, slug)
) STRICT, WITHOUT ROWID;

-- Every version of every profile, also the one that is there now.
CREATE TABLE profile_versions (
    tenant_id INTEGER NOT NULL,
    slug TEXT NOT NULL,
    version INTEGER NOT NULL,
    prompt TEXT NOT NULL,
    tools TEXT NOT NULL,
    model TEXT,
    active INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    PRIMARY KEY (tenant_id, slug, version)
) STRICT, WITHOUT ROWID;

CREATE TABLE sessions (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    tenant_id INTEGER NOT NULL,
    user_id TEXT NOT NULL,
    -- Empty for none: a missing one would be unlike every other missing one.
    profile TEXT NOT NULL,
    active INTEGER NOT NULL,
    -- How many there are, so that nobody has to count them.
    messages INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX sessions_active ON sessions (tenant_id, user_id, profile) WHERE active = 1;
CREATE INDEX sessions_by_user ON sessions (tenant_id, user_id, id);
CREATE INDEX sessions_by_tenant ON sessions (tenant_id, id);

-- Who wants to speak in a thread, in the order in which they came. The number of a place is never used again: it also says
-- which numbers the user's message and its answer have.
CREATE TABLE session_line (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    session_id INTEGER NOT NULL,
    tenant_id INTEGER NOT NULL,
    user_id TEXT NOT NULL,
    process BLOB NOT NULL,
    -- Drawn by whoever got in line: finds the place of somebody who was never told its number.
    mark INTEGER NOT NULL UNIQUE,
    -- The turn that answers, once the place has spoken.
    response_id TEXT
) STRICT;
CREATE INDEX session_line_by_session ON session_line (session_id, number);
CREATE INDEX session_line_by_process ON session_line (process);
CREATE INDEX session_line_by_response ON session_line (response_id) WHERE response_id IS NOT NULL;

CREATE TABLE messages (
    id INTEGER PRIMARY KEY,
    tenant_id INTEGER NOT NULL,
    user_id TEXT NOT NULL,
    session_id INTEGER NOT NULL,
    role TEXT NOT NULL,
    response_id TEXT,
    created_at INTEGER NOT NULL,
    content TEXT NOT NULL
) STRICT;
CREATE INDEX messages_by_session ON messages (session_id, id);

CREATE TABLE message_metadata (
    number INTEGER PRIMARY KEY,
    tenant_id INTEGER NOT NULL,
    user_id TEXT NOT NULL,
    message_id INTEGER NOT NULL,
    kind TEXT NOT NULL,
    value TEXT NOT NULL
) STRICT;
CREATE INDEX message_metadata_by_message ON message_metadata (message_id, number);

CREATE TABLE courses (
    number INTEGER PRIMARY KEY,
    tenant_id INTEGER NOT NULL,
    id INTEGER NOT NULL,
    title TEXT NOT NULL,
    description TEXT NOT NULL,
    modality TEXT NOT NULL,
    kind TEXT NOT NULL,
    status TEXT,
    content_in_sequence INTEGER NOT NULL,
    min_percentage_finish INTEGER NOT NULL,
    -- Arrays of strings.
    tags TEXT NOT NULL,
    assets TEXT NOT NULL,
    url TEXT,
    progress INTEGER NOT NULL,
    is_eligible INTEGER NOT NULL,
    in_playlist INTEGER NOT NULL,
    active INTEGER NOT NULL,
    updated_at INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX courses_by_id ON courses (tenant_id, id);
CREATE INDEX courses_offered ON courses (tenant_id, id) WHERE active = 1;

-- The words of courses as they are searched for, by `courses.number`: the tenant's number, what title and tags say, and what
-- only the description says.
CREATE VIRTUAL TABLE course_words USING fts5 (
    tenant_id, strong, weak, content = '', contentless_delete = 1, tokenize = 'unicode61 remove_diacritics 0'
);
