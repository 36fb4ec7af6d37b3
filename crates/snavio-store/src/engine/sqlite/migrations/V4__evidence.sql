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

-- Versions that restores skipped before there was a chain.
INSERT INTO note (name, value)
    SELECT 'registry/skipped/' || (before + 1), version - 1
    FROM (SELECT version, lag(version, 1, 0) OVER (ORDER BY version) AS before FROM registry_change)
    WHERE version > before + 1;
INSERT INTO note (name, value)
    SELECT 'registry/skipped/' || (last + 1), value
    FROM meta, (SELECT coalesce(max(version), 0) AS last FROM registry_change)
    WHERE key = 'registry_version' AND value > last;
