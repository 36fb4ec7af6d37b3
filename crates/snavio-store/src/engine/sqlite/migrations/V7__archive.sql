-- What must not be deleted or erased (CLM-18): an id of a tenant, a destination, or all of a tenant. A row is in force
-- until it is lifted.
CREATE TABLE hold (
    seq         INTEGER PRIMARY KEY,
    tenant      TEXT    NOT NULL,
    event_id    TEXT,
    destination TEXT,
    at          INTEGER NOT NULL,
    who         TEXT    NOT NULL,
    why         TEXT    NOT NULL,
    lifted_at   INTEGER,
    lifted_by   TEXT,
    lifted_why  TEXT,
    check_value INTEGER NOT NULL
) STRICT;

CREATE INDEX hold_in_force ON hold (tenant) WHERE lifted_at IS NULL;

-- Objects of the archive. `state` is 0 begun, 1 kept because claims point to it, 2 ending.
CREATE TABLE segment (
    object     TEXT PRIMARY KEY,
    state      INTEGER NOT NULL,
    begun_at   INTEGER NOT NULL,
    records    INTEGER NOT NULL,
    expires_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX segment_by_expiry ON segment (expires_at);
CREATE INDEX segment_unsettled ON segment (begun_at) WHERE state <> 1;

-- When what the message and the answer said was destroyed.
ALTER TABLE claim ADD COLUMN erased_at INTEGER;

-- What has cooled, in an order that can be gone on from; and what a segment has.
DROP INDEX claim_cooling;
CREATE INDEX claim_cooling ON claim (hot_until, message) WHERE hot_until IS NOT NULL AND archived_at IS NULL;
CREATE INDEX claim_archived ON claim (archive) WHERE archive IS NOT NULL;
