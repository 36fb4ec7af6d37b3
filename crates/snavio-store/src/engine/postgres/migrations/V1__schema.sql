-- The store of a fleet. docs/storage.md explains it table by table; it is the embedded store's layout with what
-- several nodes need besides. Times are milliseconds since 1970 in UTC. Text is compared byte by byte.
-- Until the first release this file is edited in place; after it, each change is a migration of its own.

-- Numbers of messages, deliveries and records: a block for each transaction, taken inside it, so that a reader can
-- know when nothing below a number is still under way. They stay below 2^53, which any JSON reader keeps exact.
CREATE SEQUENCE serial AS bigint INCREMENT BY 2048 MINVALUE 2048 MAXVALUE 9007199254738944 CACHE 1 NO CYCLE;
-- Fences of leases.
CREATE SEQUENCE fence AS bigint MINVALUE 1 MAXVALUE 9007199254740991 CACHE 1 NO CYCLE;

-- The layout's version, and the oldest version of a node that can work with it.
CREATE TABLE layout (
    single        boolean PRIMARY KEY DEFAULT true CHECK (single),
    version       integer NOT NULL,
    oldest_reader integer NOT NULL
);

INSERT INTO layout (version, oldest_reader) VALUES (1, 1);

-- Takes a block of numbers for a transaction that inserts. The transaction holds the shared lock to its end. The layout
-- must serve the program: a node that was told to leave and has not heard of it writes nothing.
CREATE FUNCTION take_block(knows integer) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    oldest integer;
BEGIN
    PERFORM pg_advisory_xact_lock_shared(1936613750, 2);
    SELECT oldest_reader INTO oldest FROM layout;
    IF oldest > knows THEN
        RAISE EXCEPTION 'the database serves nodes from layout % on; this one knows %', oldest, knows
            USING ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
    RETURN nextval('serial');
END
$$;

-- Facts that the first node writes and the others must agree with.
CREATE TABLE pin (
    name  text COLLATE "C" PRIMARY KEY,
    value text COLLATE "C" NOT NULL
);

-- State of background tasks: the newest value of a name counts.
CREATE TABLE note (
    name  text COLLATE "C" PRIMARY KEY,
    value text COLLATE "C" NOT NULL
);

-- Batches of the last hour by a number that their node made up: one that is sent again finds itself here.
CREATE TABLE batch (
    nonce   uuid PRIMARY KEY,
    attempt integer NOT NULL,
    base    bigint  NOT NULL,
    at      timestamptz NOT NULL DEFAULT now()
);

CREATE INDEX batch_by_age ON batch (at);

-- Every accepted message, once, append-only. `event` is JSON: the members that an event has besides its payload. A
-- command has none.
CREATE TABLE message (
    seq              bigint PRIMARY KEY,
    tenant           text COLLATE "C" NOT NULL,
    id               text COLLATE "C" NOT NULL,
    source           text COLLATE "C" NOT NULL,
    target           text COLLATE "C" NOT NULL,
    name             text COLLATE "C" NOT NULL,
    signed_target    text COLLATE "C" NOT NULL,
    sent_at          text COLLATE "C" NOT NULL,
    key_version      text COLLATE "C" NOT NULL,
    signature        text COLLATE "C" NOT NULL,
    correlation_id   text COLLATE "C" NOT NULL,
    traceparent      text COLLATE "C" NOT NULL,
    received_at      bigint NOT NULL,
    settled_at       bigint NOT NULL,
    registry_version bigint NOT NULL,
    hash_version     integer NOT NULL,
    domain_hash      bytea  NOT NULL,
    path             text COLLATE "C" NOT NULL,
    payload          bytea  NOT NULL,
    check_value      bigint NOT NULL,
    event            text COLLATE "C"
);

CREATE INDEX message_of_tenant ON message (tenant, seq);

-- The claims of message ids at destinations. The id comes first in the key: time-ordered ids append. A claim without a
-- delivery was completed when its message was delivered.
-- `status` is 0 processing, 1 completed, 2 failed (retryable), 3 failed (final), 4 outcome unknown (IN_DOUBT).
-- `fence` is the fencing token of the lease that ended last, `attempts` the number of leases until then.
-- `repeats` counts duplicates, `last_seen_at` is the time of the last one.
-- From `hot_until` on, message and answer belong in the archive; `archive` points to them there.
-- `erased_at` is the time at which the contents of message and answer were destroyed.
CREATE TABLE claim (
    id            text COLLATE "C" NOT NULL,
    tenant        text COLLATE "C" NOT NULL,
    destination   text COLLATE "C" NOT NULL,
    source        text COLLATE "C" NOT NULL,
    message       bigint NOT NULL,
    first_seen_at bigint NOT NULL,
    expires_at    bigint NOT NULL,
    check_value   bigint NOT NULL,
    delivery      bigint,
    status        smallint NOT NULL DEFAULT 1,
    fence         bigint,
    attempts      integer NOT NULL DEFAULT 0,
    ended_at      bigint,
    reference     text COLLATE "C",
    error         text COLLATE "C",
    repeats       bigint NOT NULL DEFAULT 0,
    last_seen_at  bigint,
    hot_until     bigint,
    archived_at   bigint,
    archive       text COLLATE "C",
    erased_at     bigint,
    PRIMARY KEY (id, tenant, destination)
);

-- The sweep does not read claims that are processing, retryable or in doubt: they do not expire.
CREATE INDEX claim_by_expiry ON claim (expires_at) WHERE status NOT IN (0, 2, 4);
CREATE INDEX claim_open ON claim (status, message) WHERE status <> 1;
CREATE UNIQUE INDEX claim_of_delivery ON claim (delivery) WHERE delivery IS NOT NULL;
CREATE INDEX claim_cooling ON claim (hot_until, message) WHERE hot_until IS NOT NULL AND archived_at IS NULL;
CREATE INDEX claim_archived ON claim (archive) WHERE archive IS NOT NULL;

-- The id record where contents are compared: one content for all destinations of an id (CLM-1).
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

-- A message that waits in a queue: deleted when it is acknowledged or becomes a dead letter. `held` is 'leased' after a
-- receive, 'delayed' after a release with a delay, and NULL before either; it counts until `visible_at`.
-- `tracking` is 0 if no claim waits for the outcome, 1 if one does, 2 if one does and is held when the outcome is unknown.
-- The ordering key of a delivery, where one message of an entity is delivered at a time: `lane` is tenant, scope and
-- entity, `lane_kind` 0 of a sequence and 1 of a time, `lane_parks` the seconds for which an entity is remembered that is
-- parked when this message fails for good. A delivery that `waits` is not delivered.
CREATE TABLE delivery (
    id                bigint PRIMARY KEY,
    message           bigint NOT NULL,
    destination       text COLLATE "C" NOT NULL,
    queue             text COLLATE "C" NOT NULL,
    dead_letter_queue text COLLATE "C" NOT NULL,
    queued_at         bigint  NOT NULL,
    receives          integer NOT NULL,
    receives_max      integer NOT NULL,
    visible_at        bigint  NOT NULL,
    held              text COLLATE "C" CHECK (held IN ('leased', 'delayed')),
    fence             bigint,
    tracking          smallint NOT NULL DEFAULT 0,
    lane              text COLLATE "C",
    lane_number       bigint,
    lane_kind         smallint,
    lane_parks        bigint,
    waits             boolean NOT NULL DEFAULT false
);

CREATE INDEX delivery_by_visibility ON delivery (queue, visible_at, id);
CREATE INDEX delivery_by_age ON delivery (queued_at);
CREATE INDEX delivery_spent ON delivery (visible_at) WHERE receives >= receives_max;
CREATE INDEX delivery_lapsing ON delivery (visible_at) WHERE tracking > 0 AND held = 'leased';
CREATE INDEX delivery_in_lane ON delivery (lane, lane_number, id) WHERE lane IS NOT NULL;
-- One delivery of a lane is in front. The others are visible at no time, so that a search for due deliveries skips them.
CREATE UNIQUE INDEX delivery_in_front ON delivery (lane) WHERE lane IS NOT NULL AND visible_at < 9223372036854775807;

-- A delivery that could not be processed.
CREATE TABLE dead_letter (
    id                bigint PRIMARY KEY,
    tenant            text COLLATE "C" NOT NULL,
    message           bigint NOT NULL,
    destination       text COLLATE "C" NOT NULL,
    queue             text COLLATE "C" NOT NULL,
    dead_letter_queue text COLLATE "C" NOT NULL,
    queued_at         bigint  NOT NULL,
    receives          integer NOT NULL,
    receives_max      integer NOT NULL,
    reason            text COLLATE "C" NOT NULL,
    dead_at           bigint  NOT NULL,
    tracking          smallint NOT NULL DEFAULT 0,
    lane              text COLLATE "C",
    lane_number       bigint,
    lane_kind         smallint,
    lane_parks        bigint
);

CREATE INDEX dead_letter_of_tenant ON dead_letter (tenant, id);
CREATE INDEX dead_letter_of_queue ON dead_letter (dead_letter_queue, id);

-- The stored response to a delivery whose claim keeps it (CLM-5), byte for byte.
CREATE TABLE answer (
    delivery     bigint PRIMARY KEY,
    status       integer NOT NULL,
    content_type text COLLATE "C",
    body         bytea   NOT NULL,
    check_value  bigint NOT NULL
);

-- An id that was used for a second content (CLM-8). `seq` is the number of the conflicting message.
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

-- The state of entities whose messages are ordered (ORD-2). `lane` is tenant, scope and entity; `body` is the state and the
-- rules that it was last judged by, as JSON; at `wait_ends_at` the first waiting message is delivered without the missing
-- ones; `parked_at` is the number that failed for good and behind which later messages queue.
CREATE TABLE entity (
    lane         text COLLATE "C" PRIMARY KEY,
    body         text COLLATE "C" NOT NULL,
    expires_at   bigint NOT NULL,
    wait_ends_at bigint,
    parked_at    bigint,
    check_value  bigint NOT NULL
);

-- Entities with waiting or parked messages do not expire.
CREATE INDEX entity_by_expiry ON entity (expires_at) WHERE wait_ends_at IS NULL AND parked_at IS NULL;
CREATE INDEX entity_waiting ON entity (wait_ends_at) WHERE wait_ends_at IS NOT NULL;

-- Legal holds (CLM-18) on an id of a tenant, a destination, or all of a tenant. A hold is in force until it is lifted.
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

-- Telemetry records of a tenant that the message log does not contain.
CREATE TABLE telemetry (
    tenant text COLLATE "C" NOT NULL,
    seq    bigint NOT NULL,
    kind   text COLLATE "C" NOT NULL,
    at     bigint NOT NULL,
    source text COLLATE "C",
    body   text COLLATE "C" NOT NULL,
    PRIMARY KEY (tenant, seq)
);

CREATE INDEX telemetry_by_age ON telemetry (at);

-- The registry as it is, and every change that led to it.
CREATE TABLE registry_version (
    single  boolean PRIMARY KEY DEFAULT true CHECK (single),
    version bigint NOT NULL
);

INSERT INTO registry_version (version) VALUES (0);

CREATE TABLE registry_entry (
    kind text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    body text COLLATE "C" NOT NULL,
    PRIMARY KEY (kind, name)
);

CREATE TABLE registry_change (
    version bigint PRIMARY KEY,
    at      bigint NOT NULL,
    who     text COLLATE "C" NOT NULL,
    why     text COLLATE "C" NOT NULL,
    kind    text COLLATE "C" NOT NULL,
    name    text COLLATE "C" NOT NULL,
    before  text COLLATE "C",
    after   text COLLATE "C"
);

-- The chain over the registry's changes: each seal covers the changes since the seal before, and its head is signed (REG-5).
CREATE TABLE seal (
    number        bigint PRIMARY KEY,
    first_version bigint NOT NULL,
    last_version  bigint NOT NULL,
    at            bigint NOT NULL,
    head          bytea  NOT NULL,
    signature     bytea  NOT NULL
);

-- Acts of people on queues, dead letters, claims and the store.
CREATE TABLE audit (
    seq         bigint PRIMARY KEY,
    at          bigint NOT NULL,
    who         text COLLATE "C" NOT NULL,
    why         text COLLATE "C" NOT NULL,
    action      text COLLATE "C" NOT NULL,
    object      text COLLATE "C" NOT NULL,
    outcome     text COLLATE "C" NOT NULL,
    check_value bigint NOT NULL
);

-- The nodes of the fleet by their last heartbeats. `now_at` is the node's clock, `layout` the layout that it knows.
CREATE TABLE node (
    id               text COLLATE "C" PRIMARY KEY,
    address          text COLLATE "C" NOT NULL,
    software         text COLLATE "C" NOT NULL,
    registry_version bigint NOT NULL,
    waiting          bigint NOT NULL,
    draining         boolean NOT NULL,
    started_at       bigint  NOT NULL,
    seen_at          timestamptz NOT NULL DEFAULT now(),
    now_at           bigint,
    layout           integer NOT NULL DEFAULT 1
);

-- Tasks that one node does for all, and the end of its term.
CREATE TABLE lease (
    task  text COLLATE "C" PRIMARY KEY,
    node  text COLLATE "C" NOT NULL,
    until timestamptz NOT NULL
);

-- Autovacuum clears the dead rows of busy tables long before a fifth of their rows is dead.
ALTER TABLE claim SET (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);
ALTER TABLE delivery SET (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0, fillfactor = 80);
ALTER TABLE batch SET (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);
ALTER TABLE node SET (autovacuum_vacuum_threshold = 200, fillfactor = 50);
ALTER TABLE lease SET (autovacuum_vacuum_threshold = 200, fillfactor = 50);
ALTER TABLE entity SET (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0, fillfactor = 80);

-- Claims as an auditor queries them (CLM-2). Snavio itself does not read this view. The status is the one that lists and
-- look-ups show: a failed claim is PROCESSING while a worker holds a lease that lasts.
CREATE VIEW claims AS
SELECT claim.tenant,
       claim.id AS event_id,
       claim.destination,
       claim.source,
       encode(coalesce(message.domain_hash, original.hash), 'hex') AS domain_payload_hash,
       coalesce(message.hash_version, original.hash_version) AS hash_version,
       CASE CASE WHEN claim.status = 2 AND delivery.held = 'leased' AND delivery.fence IS NOT NULL
           AND delivery.visible_at > extract(epoch FROM clock_timestamp()) * 1000 THEN 0 ELSE claim.status END
           WHEN 0 THEN 'PROCESSING' WHEN 1 THEN 'COMPLETED' WHEN 4 THEN 'IN_DOUBT' ELSE 'FAILED' END AS status,
       coalesce(delivery.fence, claim.fence) AS fence,
       answer.status AS response_status,
       answer.body AS response_payload,
       claim.reference AS gl_posting_reference,
       message.correlation_id,
       coalesce(delivery.receives, claim.attempts) AS attempts,
       to_timestamp(claim.first_seen_at / 1000.0) AS first_seen_at,
       to_timestamp(coalesce(claim.last_seen_at, claim.first_seen_at) / 1000.0) AS last_seen_at,
       claim.repeats + 1 AS seen,
       to_timestamp(delivery.visible_at / 1000.0) AS deadline,
       to_timestamp(claim.expires_at / 1000.0) AS expires_at,
       to_timestamp(claim.archived_at / 1000.0) AS archived_at,
       claim.archive AS archive_pointer,
       to_timestamp(claim.erased_at / 1000.0) AS erased_at
FROM claim
LEFT JOIN message ON message.seq = claim.message
LEFT JOIN original ON original.id = claim.id AND original.tenant = claim.tenant
LEFT JOIN answer ON answer.delivery = claim.delivery
LEFT JOIN delivery ON delivery.id = claim.delivery AND delivery.held = 'leased' AND claim.status IN (0, 2);
