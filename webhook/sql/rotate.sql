-- Give endpoint $1 the new secret $2. The previous secret signs for 24 hours more. Older secrets
-- that still sign also sign for 24 hours more. At most five secrets sign.
--
-- Locks   the endpoint's row.
-- Index   webhook_endpoint_pkey (id).
-- Called  by Endpoints.Rotate.
UPDATE postroom.webhook_endpoint AS e
SET secrets = (ARRAY[$2::text] OPERATOR(pg_catalog.||) CASE WHEN e.rotated_at > now() - interval '24 hours' THEN e.secrets ELSE e.secrets[1:1] END)[1:5],
    rotated_at = now()
WHERE e.id = $1;
