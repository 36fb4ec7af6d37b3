-- The embedded store. docs/storage.md explains it table by table for people who read it with the sqlite3 shell.
-- Times are milliseconds since 1970 in UTC. Numbers (seq, id) are serials: the epoch in the high bits, rising.
-- Until the first release this file is edited in place; after it, each change is a migration of its own.

CREATE TABLE meta (
    key   TEXT PRIMARY KEY,
    value INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

INSERT INTO meta (key, value) VALUES ('epoch', 0), ('registry_version', 0);

-- Facts that the first start writes and each later start must agree with (ENG-7).
CREATE TABLE pin (
    name  TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- State of background tasks: the newest value of a name counts.
CREATE TABLE note (
    name  TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- Every accepted message, once, append-only. `event` is JSON: the members that an event has besides its payload. A command
-- has none.
CREATE TABLE message (
    seq              INTEGER PRIMARY KEY,
    tenant           TEXT    NOT NULL,
    id               TEXT    NOT NULL,
    source           TEXT    NOT NULL,
    target           TEXT    NOT NULL,
    name             TEXT    NOT NULL,
    signed_target    TEXT    NOT NULL,
    sent_at          TEXT    NOT NULL,
    key_version      TEXT    NOT NULL,
    signature        TEXT    NOT NULL,
    correlation_id   TEXT    NOT NULL,
    traceparent      TEXT    NOT NULL,
    received_at      INTEGER NOT NULL,
    settled_at       INTEGER NOT NULL,
    registry_version INTEGER NOT NULL,
    hash_version     INTEGER NOT NULL,
    domain_hash      BLOB    NOT NULL,
    path             TEXT    NOT NULL,
    payload          BLOB    NOT NULL,
    check_value      INTEGER NOT NULL,
    event            TEXT
) STRICT;

CREATE INDEX message_of_tenant ON message (tenant, seq);

-- The claims of message ids at destinations, in the order in which they were made; known_id finds them by id. A claim
-- without a delivery was completed when its message was delivered.
-- `status` is 0 processing, 1 completed, 2 failed (retryable), 3 failed (final), 4 outcome unknown (IN_DOUBT).
-- `fence` is the fencing token of the lease that ended last, `attempts` the number of leases until then.
-- `repeats` counts duplicates, `last_seen_at` is the time of the last one.
-- From `hot_until` on, message and answer belong in the archive; `archive` points to them there.
-- `erased_at` is the time at which the contents of message and answer were destroyed.
CREATE TABLE claim (
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

-- The sweep does not read claims that are processing, retryable or in doubt: they do not expire. For NOT IN, SQLite
-- would build a temporary tree of the values for each insert.
CREATE INDEX claim_by_expiry ON claim (expires_at) WHERE status IN (1, 3);
CREATE INDEX claim_open ON claim (status, message) WHERE status <> 1;
CREATE UNIQUE INDEX claim_of_delivery ON claim (delivery) WHERE delivery IS NOT NULL;
CREATE INDEX claim_cooling ON claim (hot_until, message) WHERE hot_until IS NOT NULL AND archived_at IS NULL;
CREATE INDEX claim_archived ON claim (archive) WHERE archive IS NOT NULL;

-- The id record where contents are compared: one content for all destinations of an id (CLM-1).
CREATE TABLE original (
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

CREATE INDEX original_by_expiry ON original (expires_at);

-- Finds claims (`kind` 0) and id records (`kind` 1) by the digest of id and tenant. Claims lie in the order in which they
-- were made: in the order of random ids, each message would rewrite two pages of its own.
CREATE TABLE known_id (
    digest BLOB    NOT NULL,
    kind   INTEGER NOT NULL,
    number INTEGER NOT NULL,
    PRIMARY KEY (digest, kind, number)
) STRICT, WITHOUT ROWID;

-- A message that waits in a queue: deleted when it is acknowledged or becomes a dead letter.
-- `tracking` is 0 if no claim waits for the outcome, 1 if one does, 2 if one does and is held when the outcome is unknown.
-- The lease of a tracked delivery (CLM-7): `fence` is the newest fencing token; `held` is 'leased' or, after a release with a
-- delay, 'delayed', and counts until `visible_at`. Leases of other deliveries are in memory only.
-- The ordering key of a delivery, where one message of an entity is delivered at a time: `lane` is tenant, scope and entity,
-- `lane_kind` 0 of a sequence and 1 of a time, `lane_parks` the seconds for which an entity is remembered that is parked when
-- this message fails for good. A delivery that `waits` is not delivered.
CREATE TABLE delivery (
    id                INTEGER PRIMARY KEY,
    message           INTEGER NOT NULL,
    destination       TEXT    NOT NULL,
    queue             TEXT    NOT NULL,
    dead_letter_queue TEXT    NOT NULL,
    queued_at         INTEGER NOT NULL,
    receives          INTEGER NOT NULL,
    receives_max      INTEGER NOT NULL,
    tracking          INTEGER NOT NULL DEFAULT 0,
    visible_at        INTEGER,
    held              TEXT CHECK (held IN ('leased', 'delayed')),
    fence             INTEGER,
    lane              TEXT,
    lane_number       INTEGER,
    lane_kind         INTEGER,
    lane_parks        INTEGER,
    waits             INTEGER NOT NULL DEFAULT 0
) STRICT;

CREATE INDEX delivery_waiting ON delivery (lane, lane_number) WHERE waits = 1;

-- A delivery that could not be processed.
CREATE TABLE dead_letter (
    id                INTEGER PRIMARY KEY,
    tenant            TEXT    NOT NULL,
    message           INTEGER NOT NULL,
    destination       TEXT    NOT NULL,
    queue             TEXT    NOT NULL,
    dead_letter_queue TEXT    NOT NULL,
    queued_at         INTEGER NOT NULL,
    receives          INTEGER NOT NULL,
    receives_max      INTEGER NOT NULL,
    reason            TEXT    NOT NULL,
    dead_at           INTEGER NOT NULL,
    tracking          INTEGER NOT NULL DEFAULT 0,
    lane              TEXT,
    lane_number       INTEGER,
    lane_kind         INTEGER,
    lane_parks        INTEGER
) STRICT;

CREATE INDEX dead_letter_of_tenant ON dead_letter (tenant, id);
CREATE INDEX dead_letter_of_queue ON dead_letter (dead_letter_queue, id);

-- The stored response to a delivery whose claim keeps it (CLM-5), byte for byte.
CREATE TABLE answer (
    delivery     INTEGER PRIMARY KEY,
    status       INTEGER NOT NULL,
    content_type TEXT,
    body         BLOB    NOT NULL,
    check_value  INTEGER NOT NULL
) STRICT;

-- An id that was used for a second content (CLM-8). `seq` is the number of the conflicting message.
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

-- The state of entities whose messages are ordered (ORD-2). `body` is the state and the rules that it was last judged by, as
-- JSON; at `wait_ends_at` the first waiting message is delivered without the missing ones; `parked_at` is the number that
-- failed for good and behind which later messages queue.
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

-- Entities with waiting or parked messages do not expire.
CREATE INDEX entity_by_expiry ON entity (expires_at) WHERE wait_ends_at IS NULL AND parked_at IS NULL;
CREATE INDEX entity_waiting ON entity (wait_ends_at) WHERE wait_ends_at IS NOT NULL;
CREATE INDEX entity_parked ON entity (parked_at) WHERE parked_at IS NOT NULL;

-- Legal holds (CLM-18) on an id of a tenant, a destination, or all of a tenant. A hold is in force until it is lifted.
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

-- Telemetry records of a tenant that the message log does not contain.
CREATE TABLE telemetry (
    tenant TEXT    NOT NULL,
    seq    INTEGER NOT NULL,
    kind   TEXT    NOT NULL,
    at     INTEGER NOT NULL,
    source TEXT,
    body   TEXT    NOT NULL,
    PRIMARY KEY (tenant, seq)
) STRICT, WITHOUT ROWID;

-- The registry as it is, and every change that led to it.
CREATE TABLE registry_entry (
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY (kind, name)
) STRICT, WITHOUT ROWID;

CREATE TABLE registry_change (
    version INTEGER PRIMARY KEY,
    at      INTEGER NOT NULL,
    who     TEXT    NOT NULL,
    why     TEXT    NOT NULL,
    kind    TEXT    NOT NULL,
    name    TEXT    NOT NULL,
    before  TEXT,
    after   TEXT
) STRICT;

-- The chain over the registry's changes: each seal covers the changes since the seal before, and its head is signed (REG-5).
CREATE TABLE seal (
    number        INTEGER PRIMARY KEY,
    first_version INTEGER NOT NULL,
    last_version  INTEGER NOT NULL,
    at            INTEGER NOT NULL,
    head          BLOB NOT NULL,
    signature     BLOB NOT NULL
) STRICT;

-- Acts of people on queues, dead letters, claims and the store.
CREATE TABLE audit (
    seq         INTEGER PRIMARY KEY,
    at          INTEGER NOT NULL,
    who         TEXT    NOT NULL,
    why         TEXT    NOT NULL,
    action      TEXT    NOT NULL,
    object      TEXT    NOT NULL,
    outcome     TEXT    NOT NULL,
    check_value INTEGER NOT NULL
) STRICT;

-- Claims as an auditor queries them (CLM-2). Snavio itself does not read this view. The status is the one that lists and
-- look-ups show: a failed claim is PROCESSING while a worker holds a lease that lasts.
CREATE VIEW claims AS
SELECT claim.tenant,
       claim.id AS event_id,
       claim.destination,
       claim.source,
       -- Of what was moved to the archive only the meaning of the id is left, which takes a walk over all of them.
       nullif(lower(hex(coalesce(message.domain_hash,
           (SELECT hash FROM original WHERE original.id = claim.id AND original.tenant = claim.tenant)))), '') AS domain_payload_hash,
       coalesce(message.hash_version,
           (SELECT hash_version FROM original WHERE original.id = claim.id AND original.tenant = claim.tenant)) AS hash_version,
       CASE CASE WHEN claim.status = 2 AND delivery.held = 'leased' AND delivery.fence IS NOT NULL
           AND delivery.visible_at > (julianday('now') - 2440587.5) * 86400000 THEN 0 ELSE claim.status END
           WHEN 0 THEN 'PROCESSING' WHEN 1 THEN 'COMPLETED' WHEN 4 THEN 'IN_DOUBT' ELSE 'FAILED' END AS status,
       coalesce(delivery.fence, claim.fence) AS fence,
       answer.status AS response_status,
       CAST(answer.body AS TEXT) AS response_payload,
       claim.reference AS gl_posting_reference,
       message.correlation_id,
       coalesce(delivery.receives, claim.attempts) AS attempts,
       strftime('%Y-%m-%dT%H:%M:%fZ', claim.first_seen_at / 1000.0, 'unixepoch') AS first_seen_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', coalesce(claim.last_seen_at, claim.first_seen_at) / 1000.0, 'unixepoch')
           AS last_seen_at,
       claim.repeats + 1 AS seen,
       strftime('%Y-%m-%dT%H:%M:%fZ', delivery.visible_at / 1000.0, 'unixepoch') AS deadline,
       strftime('%Y-%m-%dT%H:%M:%fZ', claim.expires_at / 1000.0, 'unixepoch') AS expires_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', claim.archived_at / 1000.0, 'unixepoch') AS archived_at,
       claim.archive AS archive_pointer,
       strftime('%Y-%m-%dT%H:%M:%fZ', claim.erased_at / 1000.0, 'unixepoch') AS erased_at
FROM claim
LEFT JOIN message ON message.seq = claim.message
LEFT JOIN answer ON answer.delivery = claim.delivery
LEFT JOIN delivery ON delivery.id = claim.delivery AND delivery.held = 'leased' AND claim.status IN (0, 2);
