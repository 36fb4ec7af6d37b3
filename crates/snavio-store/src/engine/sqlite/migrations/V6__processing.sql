-- What became of a claim whose work is reported back (CLM-2, CLM-9). One without a delivery is complete since it was
-- delivered. `status` is 0 processing, 1 completed, 2 failed and to be tried again, 3 failed for good, 4 in doubt.
ALTER TABLE claim ADD COLUMN delivery INTEGER;
ALTER TABLE claim ADD COLUMN status INTEGER NOT NULL DEFAULT 1;
-- The lease that ended it last, and how many there were until then.
ALTER TABLE claim ADD COLUMN fence INTEGER;
ALTER TABLE claim ADD COLUMN attempts INTEGER NOT NULL DEFAULT 0;
ALTER TABLE claim ADD COLUMN ended_at INTEGER;
ALTER TABLE claim ADD COLUMN reference TEXT;
ALTER TABLE claim ADD COLUMN error TEXT;
-- How often the id came again, and when it did last.
ALTER TABLE claim ADD COLUMN repeats INTEGER NOT NULL DEFAULT 0;
ALTER TABLE claim ADD COLUMN last_seen_at INTEGER;
-- From when on its message and its answer belong in the archive, and where they are there.
ALTER TABLE claim ADD COLUMN hot_until INTEGER;
ALTER TABLE claim ADD COLUMN archived_at INTEGER;
ALTER TABLE claim ADD COLUMN archive TEXT;

CREATE INDEX claim_open ON claim (status, message) WHERE status <> 1;
CREATE UNIQUE INDEX claim_of_delivery ON claim (delivery) WHERE delivery IS NOT NULL;
CREATE INDEX claim_cooling ON claim (hot_until) WHERE hot_until IS NOT NULL AND archived_at IS NULL;

-- What was answered to a delivery whose claim keeps it (CLM-5), byte for byte.
CREATE TABLE answer (
    delivery     INTEGER PRIMARY KEY,
    status       INTEGER NOT NULL,
    content_type TEXT,
    body         BLOB    NOT NULL,
    check_value  INTEGER NOT NULL
) STRICT;

-- Whether a claim waits for what becomes of the delivery: 0 no, 1 yes, 2 yes and it is held when that is not known.
ALTER TABLE delivery ADD COLUMN tracking INTEGER NOT NULL DEFAULT 0;
ALTER TABLE dead_letter ADD COLUMN tracking INTEGER NOT NULL DEFAULT 0;

-- What an event has besides its payload, as JSON; nothing of a command.
ALTER TABLE message ADD COLUMN event TEXT;
