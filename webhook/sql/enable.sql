-- Enable endpoint $1, and forget its failures: the five days after which a failing endpoint is
-- disabled begin at its next failure.
--
-- Locks   the endpoint's row.
-- Index   webhook_endpoint_pkey (id).
-- Called  by Endpoints.Enable.
UPDATE postroom.webhook_endpoint
SET disabled_at = NULL, disabled_reason = NULL, failing_since = NULL, paused_until = NULL
WHERE id = $1;
