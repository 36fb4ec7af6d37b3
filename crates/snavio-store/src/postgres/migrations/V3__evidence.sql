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

UPDATE layout SET version = 3;
