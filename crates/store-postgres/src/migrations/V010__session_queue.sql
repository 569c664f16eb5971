-- The queue of a session has the name that the code uses.

ALTER TABLE session_line RENAME TO session_queue;
ALTER TABLE session_queue RENAME CONSTRAINT session_line_pkey TO session_queue_pkey;
ALTER TABLE session_queue RENAME CONSTRAINT session_line_mark_key TO session_queue_mark_key;
ALTER SEQUENCE session_line_number_seq RENAME TO session_queue_number_seq;
ALTER INDEX session_line_of_process RENAME TO session_queue_by_process;
ALTER INDEX session_line_by_response RENAME TO session_queue_by_response;
