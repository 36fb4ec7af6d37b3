-- A node says by which time it goes, so that one that starts can be held against those that run, and which layout it
-- knows, so that a migration that does not serve it can wait until it has left.
ALTER TABLE node
    ADD COLUMN now_at bigint,
    ADD COLUMN layout integer NOT NULL DEFAULT 1;

-- A block of numbers, as every transaction that inserts takes it: under the shared lock that it holds to its end, and
-- only for programs that the layout serves. One that was told to leave and has not heard of it writes nothing.
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

UPDATE layout SET version = 2;
