-- The chain over the registry's changes: each seal covers the changes since the one before, and its head is signed
-- (REG-5).
CREATE TABLE seal (
    number        bigint PRIMARY KEY,
    first_version bigint NOT NULL,
    last_version  bigint NOT NULL,
    at            bigint NOT NULL,
    head          bytea  NOT NULL,
    signature     bytea  NOT NULL
);

-- What a task, or somebody whom it looks after, has come to: the newest word counts.
CREATE TABLE note (
    name  text COLLATE "C" PRIMARY KEY,
    value text COLLATE "C" NOT NULL
);

-- Versions that restores skipped before there was a chain.
INSERT INTO note (name, value)
    SELECT 'registry/skipped/' || (before + 1), (version - 1)::text
    FROM (SELECT version, lag(version, 1, 0::bigint) OVER (ORDER BY version) AS before FROM registry_change) AS it
    WHERE version > before + 1;
INSERT INTO note (name, value)
    SELECT 'registry/skipped/' || (last + 1), version::text
    FROM registry_version, (SELECT coalesce(max(version), 0) AS last FROM registry_change) AS it
    WHERE version > last;

UPDATE layout SET version = 3;
