-- Events that were seen, as the Python reference keeps them. Times are ISO 8601 in UTC, so text order is time order.
CREATE TABLE IF NOT EXISTS seen_events (
    event_id      TEXT COLLATE "C" PRIMARY KEY,
    first_seen_ts TEXT COLLATE "C" NOT NULL,
    last_seen_ts  TEXT COLLATE "C" NOT NULL
);

CREATE INDEX IF NOT EXISTS seen_events_by_age ON seen_events (last_seen_ts);
