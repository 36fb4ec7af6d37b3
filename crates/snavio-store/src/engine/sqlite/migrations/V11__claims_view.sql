-- A claim whose work goes on, or is in doubt, is not over at any time: no sweep reads through those.
DROP INDEX claim_by_expiry;
CREATE INDEX claim_by_expiry ON claim (expires_at) WHERE status NOT IN (0, 2, 4);

-- Claims as an auditor asks for them (CLM-2). Nothing of Snavio reads this.
CREATE VIEW claims AS
SELECT claim.tenant,
       claim.id AS event_id,
       claim.destination,
       claim.source,
       -- Of what was moved to the archive only the meaning of the id is left, which takes a walk over all of them.
       nullif(lower(hex(coalesce(message.domain_hash,
           (SELECT hash FROM original WHERE original.message = claim.message)))), '') AS domain_payload_hash,
       coalesce(message.hash_version,
           (SELECT hash_version FROM original WHERE original.message = claim.message)) AS hash_version,
       CASE WHEN claim.status = 0 OR delivery.id IS NOT NULL THEN 'PROCESSING' WHEN claim.status = 1 THEN 'COMPLETED'
           WHEN claim.status = 4 THEN 'IN_DOUBT' ELSE 'FAILED' END AS status,
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
LEFT JOIN delivery ON delivery.id = claim.delivery AND delivery.held = 'leased' AND claim.status IN (0, 2);
