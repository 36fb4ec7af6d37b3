-- The lease of a delivery that a claim waits for (CLM-7): `fence` is the newest one's, `held` says whether somebody works
-- on it (leased) or gave it back for later (delayed), `visible_at` until when. Nothing of the others: their leases are in
-- memory only.
ALTER TABLE delivery ADD COLUMN visible_at INTEGER;
ALTER TABLE delivery ADD COLUMN held TEXT CHECK (held IN ('leased', 'delayed'));
ALTER TABLE delivery ADD COLUMN fence INTEGER;

-- What was handed out before and not reported on since may still be somebody's, and nobody noted for how long. It stays
-- theirs for the usual time from the next start on: not handed out twice at once, and where the route holds what nobody
-- knows of, held for a person then.
UPDATE delivery SET held = 'leased' WHERE tracking > 0 AND receives > 0 AND NOT EXISTS (
    SELECT 1 FROM claim
    WHERE claim.delivery = delivery.id AND claim.attempts >= delivery.receives AND claim.status <> 0);
