-- What must not be deleted or erased (CLM-18): an id of a tenant, a destination, or all of a tenant. A row is in force
-- until it is lifted.
CREATE TABLE hold (
    seq         bigint PRIMARY KEY,
    tenant      text COLLATE "C" NOT NULL,
    event_id    text COLLATE "C",
    destination text COLLATE "C",
    at          bigint NOT NULL,
    who         text COLLATE "C" NOT NULL,
    why         text COLLATE "C" NOT NULL,
    lifted_at   bigint,
    lifted_by   text COLLATE "C",
    lifted_why  text COLLATE "C",
    check_value bigint NOT NULL
);

CREATE INDEX hold_in_force ON hold (tenant) WHERE lifted_at IS NULL;

-- Objects of the archive. `state` is 0 begun, 1 kept because claims point to it, 2 ending.
CREATE TABLE segment (
    object     text COLLATE "C" PRIMARY KEY,
    state      smallint NOT NULL,
    begun_at   bigint   NOT NULL,
    records    bigint   NOT NULL,
    expires_at bigint   NOT NULL
);

CREATE INDEX segment_by_expiry ON segment (expires_at);
CREATE INDEX segment_unsettled ON segment (begun_at) WHERE state <> 1;

-- When what the message and the answer said was destroyed.
ALTER TABLE claim ADD COLUMN erased_at bigint;

-- What has cooled, in an order that can be gone on from; and what a segment has.
DROP INDEX claim_cooling;
CREATE INDEX claim_cooling ON claim (hot_until, message) WHERE hot_until IS NOT NULL AND archived_at IS NULL;
CREATE INDEX claim_archived ON claim (archive) WHERE archive IS NOT NULL;

UPDATE layout SET version = 6;
