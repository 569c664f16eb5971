-- The assistants of tenants: settings, profiles, threads and their messages, the catalogue of courses. Times are
-- milliseconds since 1970.

-- `settings` is an object of what is set; `api_key` is sealed.
CREATE TABLE agent_configs (
    tenant_id  bigint PRIMARY KEY,
    settings   text NOT NULL,
    api_key    text,
    revision   bigint NOT NULL,
    updated_at bigint NOT NULL
);

-- `tools` is an array of names.
CREATE TABLE agent_profiles (
    tenant_id  bigint NOT NULL,
    slug       text COLLATE "C" NOT NULL,
    prompt     text NOT NULL,
    tools      text NOT NULL,
    model      text,
    active     boolean NOT NULL,
    version    bigint NOT NULL,
    created_at bigint NOT NULL,
    updated_at bigint NOT NULL,
    PRIMARY KEY (tenant_id, slug)
);

-- Every version of every profile, also the one that is there now.
CREATE TABLE profile_versions (
    tenant_id  bigint NOT NULL,
    slug       text COLLATE "C" NOT NULL,
    version    bigint NOT NULL,
    prompt     text NOT NULL,
    tools      text NOT NULL,
    model      text,
    active     boolean NOT NULL,
    created_at bigint NOT NULL,
    updated_at bigint NOT NULL,
    PRIMARY KEY (tenant_id, slug, version)
);

-- `profile` is empty for none: a missing one would be unlike every other missing one. `messages` says how many there are, so
-- that nobody has to count them; no column that grows with the thread is in an index.
CREATE TABLE sessions (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant_id  bigint NOT NULL,
    user_id    text COLLATE "C" NOT NULL,
    profile    text COLLATE "C" NOT NULL,
    active     boolean NOT NULL,
    messages   bigint NOT NULL,
    created_at bigint NOT NULL,
    updated_at bigint NOT NULL
) WITH (fillfactor = 80);
CREATE UNIQUE INDEX sessions_active ON sessions (tenant_id, user_id, profile) WHERE active;
CREATE INDEX sessions_by_user ON sessions (tenant_id, user_id, id);
CREATE INDEX sessions_by_tenant ON sessions (tenant_id, id);

-- Who wants to speak in a thread, in the order in which they came. The number of a place also says which numbers the user's
-- message and its answer have. `mark` is drawn by whoever got in line: it finds the place of somebody who was never told its
-- number. `response_id` is the turn that answers, once the place has spoken.
CREATE TABLE session_line (
    number      bigint GENERATED ALWAYS AS IDENTITY,
    session_id  bigint NOT NULL,
    tenant_id   bigint NOT NULL,
    user_id     text COLLATE "C" NOT NULL,
    process     bytea NOT NULL,
    mark        bigint NOT NULL UNIQUE,
    response_id text COLLATE "C",
    PRIMARY KEY (session_id, number)
);
CREATE INDEX session_line_of_process ON session_line (process);
CREATE INDEX session_line_by_response ON session_line (tenant_id, response_id) WHERE response_id IS NOT NULL;

CREATE TABLE messages (
    id          bigint PRIMARY KEY,
    tenant_id   bigint NOT NULL,
    user_id     text COLLATE "C" NOT NULL,
    session_id  bigint NOT NULL,
    role        text NOT NULL,
    response_id text COLLATE "C",
    created_at  bigint NOT NULL,
    content     text NOT NULL
);
CREATE INDEX messages_by_session ON messages (session_id, id);

CREATE TABLE message_metadata (
    number     bigint GENERATED ALWAYS AS IDENTITY,
    tenant_id  bigint NOT NULL,
    user_id    text COLLATE "C" NOT NULL,
    message_id bigint NOT NULL,
    kind       text NOT NULL,
    value      text NOT NULL,
    PRIMARY KEY (message_id, number)
);

-- `tags` and `assets` are arrays of strings. `words` are the words as they are searched for: those of title and tags with
-- weight A, those of the description alone with none, and one that says whose course it is.
CREATE TABLE courses (
    tenant_id             bigint NOT NULL,
    id                    bigint NOT NULL,
    title                 text NOT NULL,
    description           text NOT NULL,
    modality              text NOT NULL,
    kind                  text NOT NULL,
    status                text,
    content_in_sequence   boolean NOT NULL,
    min_percentage_finish bigint NOT NULL,
    tags                  text NOT NULL,
    assets                text NOT NULL,
    url                   text,
    progress              bigint NOT NULL,
    is_eligible           boolean NOT NULL,
    in_playlist           boolean NOT NULL,
    active                boolean NOT NULL,
    updated_at            bigint NOT NULL,
    words                 tsvector NOT NULL,
    PRIMARY KEY (tenant_id, id)
);
CREATE INDEX courses_offered ON courses (tenant_id, id) WHERE active;
CREATE INDEX courses_by_word ON courses USING gin (words);
