-- What is known of entities whose messages are ordered (ORD-2). `body` is the state and the rules it was last judged by, as
-- JSON; `wait_ends_at` is when the first of those that wait is handed out without those before it, `parked_at` the number
-- that failed for good and that later ones queue behind.
CREATE TABLE entity (
    tenant       TEXT    NOT NULL,
    scope        TEXT    NOT NULL,
    entity       TEXT    NOT NULL,
    body         TEXT    NOT NULL,
    expires_at   INTEGER NOT NULL,
    wait_ends_at INTEGER,
    parked_at    INTEGER,
    check_value  INTEGER NOT NULL,
    PRIMARY KEY (tenant, scope, entity)
) STRICT, WITHOUT ROWID;

-- What waits or is parked is not forgotten: messages hang on it.
CREATE INDEX entity_by_expiry ON entity (expires_at) WHERE wait_ends_at IS NULL AND parked_at IS NULL;
CREATE INDEX entity_waiting ON entity (wait_ends_at) WHERE wait_ends_at IS NOT NULL;
CREATE INDEX entity_parked ON entity (parked_at) WHERE parked_at IS NOT NULL;

-- The lane of a delivery, where one message of an entity is handed out at a time: `lane` is tenant, scope and entity,
-- `lane_kind` 0 of a sequence and 1 of a time, `lane_parks` how many seconds an entity is remembered that is parked when
-- this one fails for good. What `waits` is not handed out.
ALTER TABLE delivery ADD COLUMN lane TEXT;
ALTER TABLE delivery ADD COLUMN lane_number INTEGER;
ALTER TABLE delivery ADD COLUMN lane_kind INTEGER;
ALTER TABLE delivery ADD COLUMN lane_parks INTEGER;
ALTER TABLE delivery ADD COLUMN waits INTEGER NOT NULL DEFAULT 0;
CREATE INDEX delivery_waiting ON delivery (lane, lane_number) WHERE waits = 1;

ALTER TABLE dead_letter ADD COLUMN lane TEXT;
ALTER TABLE dead_letter ADD COLUMN lane_number INTEGER;
ALTER TABLE dead_letter ADD COLUMN lane_kind INTEGER;
ALTER TABLE dead_letter ADD COLUMN lane_parks INTEGER;
