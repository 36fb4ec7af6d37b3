-- Claims as an auditor asks for them (CLM-2). Nothing of Snavio reads this. The status is the one that lists and look-ups
-- show: a claim that failed is being processed while a worker holds a lease that lasts.
CREATE OR REPLACE VIEW claims AS
SELECT claim.tenant,
       claim.id AS event_id,
       claim.destination,
       claim.source,
       encode(coalesce(message.domain_hash, original.hash), 'hex') AS domain_payload_hash,
       coalesce(message.hash_version, original.hash_version) AS hash_version,
       CASE CASE WHEN claim.status = 2 AND delivery.held = 'leased' AND delivery.fence IS NOT NULL
           AND delivery.visible_at > extract(epoch FROM clock_timestamp()) * 1000 THEN 0 ELSE claim.status END
           WHEN 0 THEN 'PROCESSING' WHEN 1 THEN 'COMPLETED' WHEN 4 THEN 'IN_DOUBT' ELSE 'FAILED' END AS status,
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

UPDATE layout SET version = 9;
