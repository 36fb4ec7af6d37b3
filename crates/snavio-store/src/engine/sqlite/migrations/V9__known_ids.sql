-- Claims and meanings lie in the order in which they were made, and are found through their id or its digest: in the order of
-- their ids, every message with a random one rewrote two pages of its own.
CREATE TABLE known_id (
    digest BLOB    NOT NULL,
    kind   INTEGER NOT NULL,
    number INTEGER NOT NULL,
    PRIMARY KEY (digest, kind, number)
) STRICT, WITHOUT ROWID;

CREATE TABLE claim_in_order (
    number        INTEGER PRIMARY KEY,
    id            TEXT    NOT NULL,
    tenant        TEXT    NOT NULL,
    destination   TEXT    NOT NULL,
    source        TEXT    NOT NULL,
    message       INTEGER NOT NULL,
    first_seen_at INTEGER NOT NULL,
    expires_at    INTEGER NOT NULL,
    check_value   INTEGER NOT NULL,
    delivery      INTEGER,
    status        INTEGER NOT NULL DEFAULT 1,
    fence         INTEGER,
    attempts      INTEGER NOT NULL DEFAULT 0,
    ended_at      INTEGER,
    reference     TEXT,
    error         TEXT,
    repeats       INTEGER NOT NULL DEFAULT 0,
    last_seen_at  INTEGER,
    hot_until     INTEGER,
    archived_at   INTEGER,
    archive       TEXT,
    erased_at     INTEGER
) STRICT;

INSERT INTO claim_in_order
    SELECT NULL, id, tenant, destination, source, message, first_seen_at, expires_at, check_value, delivery, status, fence, attempts,
        ended_at, reference, error, repeats, last_seen_at, hot_until, archived_at, archive, erased_at
    FROM claim ORDER BY message, destination;

CREATE TABLE original_in_order (
    number       INTEGER PRIMARY KEY,
    id           TEXT    NOT NULL,
    tenant       TEXT    NOT NULL,
    source       TEXT    NOT NULL,
    message      INTEGER NOT NULL,
    hash_version INTEGER NOT NULL,
    hash         BLOB    NOT NULL,
    expires_at   INTEGER NOT NULL,
    check_value  INTEGER NOT NULL
) STRICT;

INSERT INTO original_in_order
    SELECT NULL, id, tenant, source, message, hash_version, hash, expires_at, check_value FROM original ORDER BY message;

DROP TABLE claim;
DROP TABLE original;
ALTER TABLE claim_in_order RENAME TO claim;
ALTER TABLE original_in_order RENAME TO original;

-- `kind` is 0 of a claim, 1 of a meaning.
INSERT INTO known_id
    SELECT snavio_digest(id, tenant), 0, number FROM claim
    UNION ALL SELECT snavio_digest(id, tenant), 1, number FROM original
    ORDER BY 1, 2, 3;

CREATE INDEX claim_by_expiry ON claim (expires_at);
CREATE INDEX claim_open ON claim (status, message) WHERE status <> 1;
CREATE UNIQUE INDEX claim_of_delivery ON claim (delivery) WHERE delivery IS NOT NULL;
CREATE INDEX claim_cooling ON claim (hot_until, message) WHERE hot_until IS NOT NULL AND archived_at IS NULL;
CREATE INDEX claim_archived ON claim (archive) WHERE archive IS NOT NULL;
CREATE INDEX original_by_expiry ON original (expires_at);
