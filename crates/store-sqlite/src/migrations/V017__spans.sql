-- What an ended turn spent its time on, as a JSON array, and its place in a trace, as in the header `traceparent`.
ALTER TABLE turns ADD COLUMN trace TEXT;
ALTER TABLE turns ADD COLUMN spans TEXT;
