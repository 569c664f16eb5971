-- What of a course belongs to one learner: NULL where the value of the catalogue counts. Times are milliseconds since 1970.

CREATE TABLE learner_courses (
    tenant_id bigint NOT NULL,
    user_id text COLLATE "C" NOT NULL,
    course_id bigint NOT NULL,
    status text,
    progress bigint,
    is_eligible boolean,
    in_playlist boolean,
    updated_at bigint NOT NULL,
    PRIMARY KEY (tenant_id, user_id, course_id)
);
CREATE INDEX learner_courses_by_course ON learner_courses (tenant_id, course_id);

-- Lists of all users of a tenant.
CREATE INDEX agent_sessions_by_tenant ON agent_sessions (tenant_id, id);
-- The first servers had an index of this name.
DROP INDEX IF EXISTS conversations_by_user;
CREATE INDEX conversations_by_user ON conversations (tenant_id, user_id, id);
