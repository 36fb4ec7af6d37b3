-- The store of a fleet. docs/storage.md explains it table by table; it is the embedded store's layout with what
-- several nodes need besides. Times are milliseconds since 1970 in UTC. Text is compared byte by byte.

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

-- Facts that the first node writes and the others must agree with.
CREATE TABLE pin (
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

-- Every accepted message, once, append-only.
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
    check_value      bigint NOT NULL
);

CREATE INDEX message_of_tenant ON message (tenant, seq);

-- An id that was taken up for a destination. The id comes first: time-ordered ids append.
CREATE TABLE claim (
    id            text COLLATE "C" NOT NULL,
    tenant        text COLLATE "C" NOT NULL,
    destination   text COLLATE "C" NOT NULL,
    source        text COLLATE "C" NOT NULL,
    message       bigint NOT NULL,
    first_seen_at bigint NOT NULL,
    expires_at    bigint NOT NULL,
    check_value   bigint NOT NULL,
    PRIMARY KEY (id, tenant, destination)
);

CREATE INDEX claim_by_expiry ON claim (expires_at);

-- A message on its way: deleted when it is acknowledged or becomes a dead letter. `held` is 'leased' after a
-- receive, 'delayed' after it was given back, and nothing before either; it counts until `visible_at`.
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
    fence             bigint
);

CREATE INDEX delivery_by_visibility ON delivery (queue, visible_at, id);
CREATE INDEX delivery_by_age ON delivery (queued_at);
CREATE INDEX delivery_spent ON delivery (visible_at) WHERE receives >= receives_max;

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
    dead_at           bigint  NOT NULL
);

CREATE INDEX dead_letter_of_tenant ON dead_letter (tenant, id);
CREATE INDEX dead_letter_of_queue ON dead_letter (dead_letter_queue, id);

-- What happened to a tenant's messages, besides what the message log says itself.
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

-- What people did to queues, dead letters and the store itself.
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

-- The nodes of the fleet, each as it last said it was.
CREATE TABLE node (
    id               text COLLATE "C" PRIMARY KEY,
    address          text COLLATE "C" NOT NULL,
    software         text COLLATE "C" NOT NULL,
    registry_version bigint NOT NULL,
    waiting          bigint NOT NULL,
    draining         boolean NOT NULL,
    started_at       bigint  NOT NULL,
    seen_at          timestamptz NOT NULL DEFAULT now()
);

-- Tasks that one node does for all, and until when.
CREATE TABLE lease (
    task  text COLLATE "C" PRIMARY KEY,
    node  text COLLATE "C" NOT NULL,
    until timestamptz NOT NULL
);

-- Tables whose rows come and go want their dead rows cleared long before a fifth of them is dead.
ALTER TABLE claim SET (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);
ALTER TABLE delivery SET (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0, fillfactor = 80);
ALTER TABLE batch SET (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);
ALTER TABLE node SET (autovacuum_vacuum_threshold = 200, fillfactor = 50);
ALTER TABLE lease SET (autovacuum_vacuum_threshold = 200, fillfactor = 50);
