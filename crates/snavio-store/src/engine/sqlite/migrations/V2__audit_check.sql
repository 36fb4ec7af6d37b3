-- What people did is evidence, like messages and claims: it carries a check value (QUA-1).
-- The store gives the migration snavio_check_value(), which does what docs/storage.md says of check_value.

ALTER TABLE audit RENAME TO audit_unchecked;

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

INSERT INTO audit (seq, at, who, why, action, object, outcome, check_value)
SELECT seq, at, who, why, action, object, outcome,
       snavio_check_value(seq, at, who, why, action, object, outcome)
FROM audit_unchecked;

DROP TABLE audit_unchecked;
