-- The embedded store. docs/storage.md explains it table by table for people who read it with the sqlite3 shell.
-- Times are milliseconds since 1970 in UTC. Numbers (seq, id) are serials: epoch in the high bits, rising.

CREATE TABLE meta (
    key   TEXT PRIMARY KEY,
    value INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

INSERT INTO meta (key, value) VALUES ('epoch', 0), ('registry_version', 0);

-- Every accepted message, once, append-only.
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
) STRICT;

CREATE INDEX message_of_tenant ON message (tenant, seq);

-- An id that was taken up for a destination. The id comes first: time-ordered ids append.
CREATE TABLE claim (
    id            TEXT    NOT NULL,
    tenant        TEXT    NOT NULL,
    destination   TEXT    NOT NULL,
    source        TEXT    NOT NULL,
    message       INTEGER NOT NULL,
    first_seen_at INTEGER NOT NULL,
    expires_at    INTEGER NOT NULL,
    check_value   INTEGER NOT NULL,
    PRIMARY KEY (id, tenant, destination)
) STRICT, WITHOUT ROWID;

CREATE INDEX claim_by_expiry ON claim (expires_at);

-- A message on its way: deleted when it is acknowledged or becomes a dead letter.
CREATE TABLE delivery (
    id                INTEGER PRIMARY KEY,
    message           INTEGER NOT NULL,
    destination       TEXT    NOT NULL,
    queue             TEXT    NOT NULL,
    dead_letter_queue TEXT    NOT NULL,
    queued_at         INTEGER NOT NULL,
    receives          INTEGER NOT NULL,
    receives_max      INTEGER NOT NULL
) STRICT;

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
    dead_at           INTEGER NOT NULL
) STRICT;

CREATE INDEX dead_letter_of_tenant ON dead_letter (tenant, id);
CREATE INDEX dead_letter_of_queue ON dead_letter (dead_letter_queue, id);

-- What happened to a tenant's messages, besides what the message log says itself.
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

-- What people did to queues, dead letters and the store itself.
CREATE TABLE audit (
    seq     INTEGER PRIMARY KEY,
    at      INTEGER NOT NULL,
    who     TEXT    NOT NULL,
    why     TEXT    NOT NULL,
    action  TEXT    NOT NULL,
    object  TEXT    NOT NULL,
    outcome TEXT    NOT NULL
) STRICT;
