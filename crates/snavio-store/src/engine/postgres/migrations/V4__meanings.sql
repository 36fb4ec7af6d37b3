-- What an id means where contents are compared: one content for all destinations (CLM-1).
CREATE TABLE original (
    id           text COLLATE "C" NOT NULL,
    tenant       text COLLATE "C" NOT NULL,
    source       text COLLATE "C" NOT NULL,
    message      bigint  NOT NULL,
    hash_version integer NOT NULL,
    hash         bytea   NOT NULL,
    expires_at   bigint  NOT NULL,
    check_value  bigint  NOT NULL,
    PRIMARY KEY (id, tenant)
);

CREATE INDEX original_by_expiry ON original (expires_at);

-- An id that was used for a second content (CLM-8). Its number is that of the conflicting message.
CREATE TABLE conflict (
    seq           bigint  PRIMARY KEY,
    place         integer NOT NULL,
    tenant        text COLLATE "C" NOT NULL,
    owner         text COLLATE "C" NOT NULL,
    event_id      text COLLATE "C" NOT NULL,
    destination   text COLLATE "C" NOT NULL,
    source        text COLLATE "C" NOT NULL,
    original      bigint  NOT NULL,
    original_hash bytea   NOT NULL,
    hash          bytea   NOT NULL,
    dead_letter   bigint  NOT NULL,
    flagged_at    bigint  NOT NULL,
    last_seen_at  bigint  NOT NULL,
    count         bigint  NOT NULL,
    state         text COLLATE "C" NOT NULL,
    notes         text COLLATE "C" NOT NULL,
    compensating  text COLLATE "C",
    check_value   bigint  NOT NULL
);

CREATE UNIQUE INDEX conflict_of_id ON conflict (event_id, tenant, place);
CREATE INDEX conflict_of_owner ON conflict (owner, seq);
CREATE INDEX conflict_of_source ON conflict (source);
CREATE INDEX conflict_open ON conflict (owner) WHERE state IN ('OPEN', 'TRIAGED');

UPDATE layout SET version = 4;
