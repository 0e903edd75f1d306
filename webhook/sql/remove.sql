-- Remove endpoint $1, with its URL and its secrets.
--
-- Locks   the endpoint's row.
-- Index   webhook_endpoint_pkey (id).
-- Called  by Endpoints.Remove.
DELETE FROM postroom.webhook_endpoint WHERE id = $1;
