-- The chain over the registry's changes: each seal covers the changes since the one before, and its head is signed
-- (REG-5).
CREATE TABLE seal (
    number        INTEGER PRIMARY KEY,
    first_version INTEGER NOT NULL,
    last_version  INTEGER NOT NULL,
    at            INTEGER NOT NULL,
    head          BLOB NOT NULL,
    signature     BLOB NOT NULL
) STRICT;

-- What a task, or somebody whom it looks after, has come to: the newest word counts.
CREATE TABLE note (
    name  TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;
