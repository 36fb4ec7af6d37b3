-- The condition of a partial index is evaluated for each claim that is inserted. For NOT IN, SQLite builds a temporary tree of
-- the values each time.
DROP INDEX claim_by_expiry;
CREATE INDEX claim_by_expiry ON claim (expires_at) WHERE status IN (1, 3);
