-- What costs every turn and is hardly used.

-- A turn that is added and ended at once is in the foreground, so its insert enqueues no event; a background turn is added first
-- and ended then.
DROP TRIGGER webhook_response_added;

-- The queue holds running and waiting turns only: for a dead process it is walked through.
DROP INDEX session_queue_by_process;
