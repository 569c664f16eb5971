-- What of a course belongs to one learner: NULL where the value of the catalogue counts. Times are milliseconds since 1970.

CREATE TABLE learner_courses (
    tenant_id INTEGER NOT NULL,
    user_id TEXT NOT NULL,
    course_id INTEGER NOT NULL,
    status TEXT,
    progress INTEGER,
    is_eligible INTEGER,
    in_playlist INTEGER,
    updated_at INTEGER NOT NULL,
    PRIMARY KEY (tenant_id, user_id, course_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX learner_courses_by_course ON learner_courses (tenant_id, course_id);

-- The words of a course go with it.
CREATE TRIGGER course_words_deleted AFTER DELETE ON courses BEGIN
    DELETE FROM course_words WHERE rowid = old.number;
END;

-- Lists of all users of a tenant.
CREATE INDEX agent_sessions_by_tenant ON agent_sessions (tenant_id, id);
-- The first servers had an index of this name.
DROP INDEX IF EXISTS conversations_by_user;
CREATE INDEX conversations_by_user ON conversations (tenant_id, user_id, id);
