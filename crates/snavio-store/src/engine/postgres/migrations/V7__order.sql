-- What is known of entities whose messages are ordered (ORD-2). `lane` is tenant, scope and entity; `body` is the state and the
-- rules it was last judged by, as JSON; `wait_ends_at` is when the first of those that wait is handed out without those before
-- it, `parked_at` the number that failed for good and that later ones queue behind.
CREATE TABLE entity (
    lane         text COLLATE "C" PRIMARY KEY,
    body         text COLLATE "C" NOT NULL,
    expires_at   bigint NOT NULL,
    wait_ends_at bigint,
    parked_at    bigint,
    check_value  bigint NOT NULL
);

-- What waits or is parked is not forgotten: messages hang on it.
CREATE INDEX entity_by_expiry ON entity (expires_at) WHERE wait_ends_at IS NULL AND parked_at IS NULL;
CREATE INDEX entity_waiting ON entity (wait_ends_at) WHERE wait_ends_at IS NOT NULL;
ALTER TABLE entity SET (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0, fillfactor = 80);

-- The lane of a delivery, where one message of an entity is handed out at a time: `lane_kind` is 0 of a sequence and 1 of a time,
-- `lane_parks` how many seconds an entity is remembered that is parked when this one fails for good. What `waits` is not handed
-- out.
ALTER TABLE delivery ADD COLUMN lane text COLLATE "C";
ALTER TABLE delivery ADD COLUMN lane_number bigint;
ALTER TABLE delivery ADD COLUMN lane_kind smallint;
ALTER TABLE delivery ADD COLUMN lane_parks bigint;
ALTER TABLE delivery ADD COLUMN waits boolean NOT NULL DEFAULT false;
CREATE INDEX delivery_in_lane ON delivery (lane, lane_number, id) WHERE lane IS NOT NULL;
-- One of a lane is in front; those behind it are visible at no time, so that nobody who looks for what is due meets them.
CREATE UNIQUE INDEX delivery_in_front ON delivery (lane) WHERE lane IS NOT NULL AND visible_at < 9223372036854775807;

ALTER TABLE dead_letter ADD COLUMN lane text COLLATE "C";
ALTER TABLE dead_letter ADD COLUMN lane_number bigint;
ALTER TABLE dead_letter ADD COLUMN lane_kind smallint;
ALTER TABLE dead_letter ADD COLUMN lane_parks bigint;

UPDATE layout SET version = 7;
