PRAGMA foreign_keys=OFF;
BEGIN TRANSACTION;
CREATE TABLE refinery_schema_history(
             version int4 PRIMARY KEY,
             name VARCHAR(255),
             applied_on VARCHAR(255),
             checksum VARCHAR(255));
INSERT INTO refinery_schema_history VALUES(1,'first','2026-11-15T08:30:00Z','9919482852849526535');
INSERT INTO refinery_schema_history VALUES(2,'audit_check','2026-11-15T08:30:00Z','10178134306200910801');
INSERT INTO refinery_schema_history VALUES(3,'pins','2026-11-15T08:30:00Z','15763135482255004369');
INSERT INTO refinery_schema_history VALUES(4,'evidence','2026-11-15T18:31:26.125712726Z','8937749521833089577');
INSERT INTO refinery_schema_history VALUES(5,'meanings','2026-11-15T22:55:00Z','1070855075822448379');
INSERT INTO refinery_schema_history VALUES(6,'processing','2026-11-16T01:47:30.759560169Z','16598200344357543923');
INSERT INTO refinery_schema_history VALUES(7,'archive','2026-11-16T02:30:26.746457155Z','5192724719786526310');
INSERT INTO refinery_schema_history VALUES(8,'leases','2026-11-16T04:32:49.668487599Z','12816751820524142056');
INSERT INTO refinery_schema_history VALUES(9,'known_ids','2026-11-16T05:22:50.766609311Z','18115749235385059229');
INSERT INTO refinery_schema_history VALUES(10,'order','2026-11-16T08:27:42.739926566Z','12896568266027074000');
INSERT INTO refinery_schema_history VALUES(11,'claims_view','2026-11-16T15:34:04.600686582Z','8836245431678997087');
INSERT INTO refinery_schema_history VALUES(12,'claims_of_archived','2026-11-18T21:21:37.308507412Z','15450486646789172436');
INSERT INTO refinery_schema_history VALUES(13,'expiry_index','2026-11-19T20:18:44.255187822Z','6110867838064198974');
INSERT INTO refinery_schema_history VALUES(14,'claim_status','2026-11-19T21:29:28.572876746Z','13060307071516536997');
CREATE TABLE meta (
    key   TEXT PRIMARY KEY,
    value INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO meta VALUES('epoch',20);
INSERT INTO meta VALUES('registry_version',0);
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
    check_value      INTEGER NOT NULL
, event TEXT) STRICT;
INSERT INTO message VALUES(268435457,'acme','old','acme/billing','acme/bot','pay','bot','2026-11-15T08:30:00Z','hmac-v1','abababababababababababababababababababababababababababababababab','07070707070707070707070707070707','00-07070707070707070707070707070707-0707070707070707-01',1794731400000,1794731400000,5,1,X'0909090909090909090909090909090909090909090909090909090909090909','slow',X'7b20226f66223a20226f6c6422207d',3040173891,NULL);
CREATE TABLE delivery (
    id                INTEGER PRIMARY KEY,
    message           INTEGER NOT NULL,
    destination       TEXT    NOT NULL,
    queue             TEXT    NOT NULL,
    dead_letter_queue TEXT    NOT NULL,
    queued_at         INTEGER NOT NULL,
    receives          INTEGER NOT NULL,
    receives_max      INTEGER NOT NULL
, tracking INTEGER NOT NULL DEFAULT 0, visible_at INTEGER, held TEXT CHECK (held IN ('leased', 'delayed')), fence INTEGER, lane TEXT, lane_number INTEGER, lane_kind INTEGER, lane_parks INTEGER, waits INTEGER NOT NULL DEFAULT 0) STRICT;
INSERT INTO delivery VALUES(268435458,268435457,'acme/bot:pay','acme/pay','acme/dead',1794731400000,1,3,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0);
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
    dead_at           INTEGER NOT NULL
, tracking INTEGER NOT NULL DEFAULT 0, lane TEXT, lane_number INTEGER, lane_kind INTEGER, lane_parks INTEGER) STRICT;
CREATE TABLE telemetry (
    tenant TEXT    NOT NULL,
    seq    INTEGER NOT NULL,
    kind   TEXT    NOT NULL,
    at     INTEGER NOT NULL,
    source TEXT,
    body   TEXT    NOT NULL,
    PRIMARY KEY (tenant, seq)
) STRICT, WITHOUT ROWID;
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
INSERT INTO audit VALUES(268435459,1794731400000,'operator','naïve ☃','queue.purge','acme/nobody','0 deliveries deleted',3644811684);
CREATE TABLE pin (
    name  TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE seal (
    number        INTEGER PRIMARY KEY,
    first_version INTEGER NOT NULL,
    last_version  INTEGER NOT NULL,
    at            INTEGER NOT NULL,
    head          BLOB NOT NULL,
    signature     BLOB NOT NULL
) STRICT;
CREATE TABLE note (
    name  TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;
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
CREATE TABLE answer (
    delivery     INTEGER PRIMARY KEY,
    status       INTEGER NOT NULL,
    content_type TEXT,
    body         BLOB    NOT NULL,
    check_value  INTEGER NOT NULL
) STRICT;
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
CREATE TABLE segment (
    object     TEXT PRIMARY KEY,
    state      INTEGER NOT NULL,
    begun_at   INTEGER NOT NULL,
    records    INTEGER NOT NULL,
    expires_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE known_id (
    digest BLOB    NOT NULL,
    kind   INTEGER NOT NULL,
    number INTEGER NOT NULL,
    PRIMARY KEY (digest, kind, number)
) STRICT, WITHOUT ROWID;
INSERT INTO known_id VALUES(X'd97ae085102bf234b77ef8306113955f',0,1);
CREATE TABLE IF NOT EXISTS "claim" (
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
INSERT INTO claim VALUES(1,'old','acme','acme/bot:pay','acme/billing',268435457,1794731400000,1794731700000,3410237912,NULL,1,NULL,0,NULL,NULL,NULL,0,NULL,NULL,NULL,NULL,NULL);
CREATE TABLE IF NOT EXISTS "original" (
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
CREATE INDEX message_of_tenant ON message (tenant, seq);
CREATE INDEX dead_letter_of_tenant ON dead_letter (tenant, id);
CREATE INDEX dead_letter_of_queue ON dead_letter (dead_letter_queue, id);
CREATE UNIQUE INDEX conflict_of_id ON conflict (event_id, tenant, place);
CREATE INDEX conflict_of_owner ON conflict (owner, seq);
CREATE INDEX conflict_of_source ON conflict (source);
CREATE INDEX conflict_open ON conflict (owner) WHERE state IN ('OPEN', 'TRIAGED');
CREATE INDEX hold_in_force ON hold (tenant) WHERE lifted_at IS NULL;
CREATE INDEX segment_by_expiry ON segment (expires_at);
CREATE INDEX segment_unsettled ON segment (begun_at) WHERE state <> 1;
CREATE INDEX claim_open ON claim (status, message) WHERE status <> 1;
CREATE UNIQUE INDEX claim_of_delivery ON claim (delivery) WHERE delivery IS NOT NULL;
CREATE INDEX claim_cooling ON claim (hot_until, message) WHERE hot_until IS NOT NULL AND archived_at IS NULL;
CREATE INDEX claim_archived ON claim (archive) WHERE archive IS NOT NULL;
CREATE INDEX original_by_expiry ON original (expires_at);
CREATE INDEX entity_by_expiry ON entity (expires_at) WHERE wait_ends_at IS NULL AND parked_at IS NULL;
CREATE INDEX entity_waiting ON entity (wait_ends_at) WHERE wait_ends_at IS NOT NULL;
CREATE INDEX entity_parked ON entity (parked_at) WHERE parked_at IS NOT NULL;
CREATE INDEX delivery_waiting ON delivery (lane, lane_number) WHERE waits = 1;
CREATE INDEX claim_by_expiry ON claim (expires_at) WHERE status IN (1, 3);
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
LEFT JOIN delivery ON delivery.id = claim.delivery AND delivery.held = 'leased' AND claim.status IN (0, 2)
;
COMMIT;
