-- The books. Amounts are whole hundredths; a line has one side.
CREATE TABLE IF NOT EXISTS journal_entry (
    reference TEXT PRIMARY KEY,           -- JE-2026-000001: gapless within a year
    year INTEGER NOT NULL,
    number INTEGER NOT NULL,
    tenant TEXT NOT NULL,                 -- of the sender
    message_id TEXT NOT NULL,
    posting_date TEXT NOT NULL,
    currency TEXT NOT NULL,
    UNIQUE (tenant, message_id),
    UNIQUE (year, number)
) STRICT;

CREATE TABLE IF NOT EXISTS line (
    reference TEXT NOT NULL REFERENCES journal_entry,
    number INTEGER NOT NULL,
    account TEXT NOT NULL,
    debit_cents INTEGER NOT NULL CHECK (debit_cents >= 0),
    credit_cents INTEGER NOT NULL CHECK (credit_cents >= 0),
    PRIMARY KEY (reference, number),
    CHECK ((debit_cents = 0) <> (credit_cents = 0))
) STRICT;

-- The last number of each year. Counting within the entry's transaction leaves no gap when that is rolled back.
CREATE TABLE IF NOT EXISTS counter (
    year INTEGER PRIMARY KEY,
    last INTEGER NOT NULL
) STRICT;

-- What was answered under an idempotency key, byte for byte, and to which content.
CREATE TABLE IF NOT EXISTS answered (
    tenant TEXT NOT NULL,
    idempotency_key TEXT NOT NULL,
    payload_sha256 TEXT NOT NULL,
    answer TEXT NOT NULL,
    PRIMARY KEY (tenant, idempotency_key)
) STRICT;
