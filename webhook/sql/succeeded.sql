-- Record that endpoint $1 answered with the HTTP status $2, a success: it no longer fails.
-- Returns whether it failed before.
--
-- Locks   the endpoint's row.
-- Index   webhook_endpoint_pkey (id).
-- Called  by Sender.succeeded.
WITH before AS (
    SELECT id, failing_since FROM postroom.webhook_endpoint WHERE id = $1 FOR UPDATE
)
UPDATE postroom.webhook_endpoint AS e
SET failing_since = NULL, paused_until = NULL, last_status = $2, last_at = now()
FROM before
WHERE e.id = before.id
RETURNING before.failing_since IS NOT NULL;
