-- Record that endpoint $1 answered with the HTTP status $2, a success: it no longer fails.
--
-- Locks   the endpoint's row.
-- Index   webhook_endpoint_pkey (id).
-- Called  by Sender.succeeded.
UPDATE postroom.webhook_endpoint
SET failing_since = NULL, paused_until = NULL, last_status = $2, last_at = now()
WHERE id = $1;
