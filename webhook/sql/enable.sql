-- Enable endpoint $1, and forget its failures: if it fails again, it is disabled after five days.
--
-- Locks   the endpoint's row.
-- Index   webhook_endpoint_pkey (id).
-- Called  by Endpoints.Enable.
UPDATE postroom.webhook_endpoint
SET disabled_at = NULL, disabled_reason = NULL, failing_since = NULL, paused_until = NULL
WHERE id = $1;
