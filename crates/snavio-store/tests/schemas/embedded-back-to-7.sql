-- Takes a store of today's layout back to the seventh, with all that is in it.
DROP VIEW claims;
DROP TABLE entity;
DROP INDEX delivery_waiting;
ALTER TABLE delivery DROP COLUMN lane;
ALTER TABLE delivery DROP COLUMN lane_number;
ALTER TABLE delivery DROP COLUMN lane_kind;
ALTER TABLE delivery DROP COLUMN lane_parks;
ALTER TABLE delivery DROP COLUMN waits;
ALTER TABLE dead_letter DROP COLUMN lane;
ALTER TABLE dead_letter DROP COLUMN lane_number;
ALTER TABLE dead_letter DROP COLUMN lane_kind;
ALTER TABLE dead_letter DROP COLUMN lane_parks;
CREATE TABLE claim_by_id (
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
    erased_at     INTEGER,
    PRIMARY KEY (id, tenant, destination)
) STRICT, WITHOUT ROWID;
INSERT INTO claim_by_id
    SELECT id, tenant, destination, source, message, first_seen_at, expires_at, check_value, delivery, status, fence,
        attempts, ended_at, reference, error, repeats, last_seen_at, hot_until, archived_at, archive, erased_at
    FROM claim;
DROP TABLE claim;
ALTER TABLE claim_by_id RENAME TO claim;
CREATE INDEX claim_by_expiry ON claim (expires_at);
CREATE INDEX claim_open ON claim (status, message) WHERE status <> 1;
CREATE UNIQUE INDEX claim_of_delivery ON claim (delivery) WHERE delivery IS NOT NULL;
CREATE INDEX claim_cooling ON claim (hot_until, message) WHERE hot_until IS NOT NULL AND archived_at IS NULL;
CREATE INDEX claim_archived ON claim (archive) WHERE archive IS NOT NULL;

CREATE TABLE original_by_id (
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
INSERT INTO original_by_id SELECT id, tenant, source, message, hash_version, hash, expires_at, check_value FROM original;
DROP TABLE original;
ALTER TABLE original_by_id RENAME TO original;
CREATE INDEX original_by_expiry ON original (expires_at);

DROP TABLE known_id;
ALTER TABLE delivery DROP COLUMN visible_at;
ALTER TABLE delivery DROP COLUMN held;
ALTER TABLE delivery DROP COLUMN fence;
DELETE FROM refinery_schema_history WHERE version > 7;
