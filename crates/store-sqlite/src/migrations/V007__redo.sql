-- Which redo log belongs to this database, and the last batch of it that the database holds.

CREATE TABLE redo (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    identity INTEGER NOT NULL,
    applied INTEGER NOT NULL
) STRICT;
INSERT INTO redo (one, identity, applied) VALUES (1, random(), 0);
