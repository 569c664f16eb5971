-- The queue of a session has the name that the code uses. SQLite renames the table in its indexes; the indexes get new names.

ALTER TABLE session_line RENAME TO session_queue;

DROP INDEX session_line_by_session;
DROP INDEX session_line_by_process;
DROP INDEX session_line_by_response;
CREATE INDEX session_queue_by_session ON session_queue (session_id, number);
CREATE INDEX session_queue_by_process ON session_queue (process);
CREATE INDEX session_queue_by_response ON session_queue (response_id) WHERE response_id IS NOT NULL;
