-- What the consumers of this database have done: one row for each message, committed with its effect.
-- Times are milliseconds since 1970 in UTC.
CREATE TABLE IF NOT EXISTS snavio_claim (
    consumer   TEXT    NOT NULL,
    tenant     TEXT    NOT NULL, -- the sender's
    message_id TEXT    NOT NULL,
    source     TEXT    NOT NULL, -- tenant/service of the sender
    hash       TEXT    NOT NULL, -- what it says: its domain hash
    result     TEXT,             -- what the effect left to be told again
    done_at    INTEGER NOT NULL,
    PRIMARY KEY (message_id, tenant, consumer)
) STRICT, WITHOUT ROWID;

CREATE INDEX IF NOT EXISTS snavio_claim_by_age ON snavio_claim (consumer, done_at);
