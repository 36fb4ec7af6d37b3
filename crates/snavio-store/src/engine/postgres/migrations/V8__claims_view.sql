-- A claim whose work goes on, or is in doubt, is not over at any time: no sweep reads through those.
DROP INDEX claim_by_expiry;
CREATE INDEX claim_by_expiry ON claim (expires_at) WHERE status NOT IN (0, 2, 4);

-- Claims as an auditor asks for them (CLM-2). Nothing of Snavio reads this.
CREATE VIEW claims AS
SELECT claim.tenant,
       claim.id AS event_id,
       claim.destination,
       claim.source,
       encode(coalesce(message.domain_hash, original.hash), 'hex') AS domain_payload_hash,
       coalesce(message.hash_version, original.hash_version) AS hash_version,
       CASE WHEN claim.status = 0 OR delivery.id IS NOT NULL THEN 'PROCESSING' WHEN claim.status = 1 THEN 'COMPLETED'
           WHEN claim.status = 4 THEN 'IN_DOUBT' ELSE 'FAILED' END AS status,
       coalesce(delivery.fence, claim.fence) AS fence,
       answer.status AS response_status,
       answer.body AS response_payload,
       claim.reference AS gl_posting_reference,
       message.correlation_id,
       coalesce(delivery.receives, claim.attempts) AS attempts,
       to_timestamp(claim.first_seen_at / 1000.0) AS first_seen_at,
       to_timestamp(coalesce(claim.last_seen_at, claim.first_seen_at) / 1000.0) AS last_seen_at,
       claim.repeats + 1 AS seen,
       to_timestamp(delivery.visible_at / 1000.0) AS deadline,
       to_timestamp(claim.expires_at / 1000.0) AS expires_at,
       to_timestamp(claim.archived_at / 1000.0) AS archived_at,
       claim.archive AS archive_pointer,
       to_timestamp(claim.erased_at / 1000.0) AS erased_at
FROM claim
LEFT JOIN message ON message.seq = claim.message
LEFT JOIN original ON original.id = claim.id AND original.tenant = claim.tenant
LEFT JOIN answer ON answer.delivery = claim.delivery
LEFT JOIN delivery ON delivery.id = claim.delivery AND delivery.held = 'leased' AND claim.status IN (0, 2);

UPDATE layout SET version = 8;
