-- Disable endpoint $1, for reason $2. If the endpoint is disabled already, the new reason
-- replaces the old one.
--
-- Locks   the endpoint's row.
-- Index   webhook_endpoint_pkey (id).
-- Called  by Endpoints.Disable.
UPDATE postroom.webhook_endpoint
SET disabled_at = coalesce(disabled_at, now()), disabled_reason = $2
WHERE id = $1;
