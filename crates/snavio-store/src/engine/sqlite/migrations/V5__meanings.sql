-- What an id means where contents are compared: one content for all destinations (CLM-1).
CREATE TABLE original (
    id           TEXT    NOT NULL,
    tenant       TEXT    NOT NULL,
    source       TEXT    NOT NULL,
    message      INTEGER NOT NULL,
    hash_version INTEGER NOT NULL,
    hash         BLOB    NOT NULL,
    expires_at   INTEGER NOT NULL,
    check_value  INTEGER NOT NULL,
    PRIMARY KEY (id, tenant)
) STRICT, WITHOUT ROWID;

CREATE INDEX original_by_expiry ON original (expires_at);

-- An id that was used for a second content (CLM-8). Its number is that of the conflicting message.
CREATE TABLE conflict (
    seq           INTEGER PRIMARY KEY,
    place         INTEGER NOT NULL,
    tenant        TEXT    NOT NULL,
    owner         TEXT    NOT NULL,
    event_id      TEXT    NOT NULL,
    destination   TEXT    NOT NULL,
    source        TEXT    NOT NULL,
    original      INTEGER NOT NULL,
    original_hash BLOB    NOT NULL,
    hash          BLOB    NOT NULL,
    dead_letter   INTEGER NOT NULL,
    flagged_at    INTEGER NOT NULL,
    last_seen_at  INTEGER NOT NULL,
    count         INTEGER NOT NULL,
    state         TEXT    NOT NULL,
    notes         TEXT    NOT NULL,
    compensating  TEXT,
    check_value   INTEGER NOT NULL
) STRICT;

CREATE UNIQUE INDEX conflict_of_id ON conflict (event_id, tenant, place);
CREATE INDEX conflict_of_owner ON conflict (owner, seq);
CREATE INDEX conflict_of_source ON conflict (source);
CREATE INDEX conflict_open ON conflict (owner) WHERE state IN ('OPEN', 'TRIAGED');
