-- The ids of the enabled endpoints of account $1 that get events of type $2.
--
-- Locks   none: if an endpoint is disabled meanwhile, its events become dead when they are due.
-- Index   webhook_endpoint_enabled (account).
-- Order   by id.
-- Called  by fanOut.Handle.
SELECT id
FROM postroom.webhook_endpoint
--guard:webhook-disabled-endpoint-is-left-out 1 true
--guard:webhook-account 2 true
WHERE disabled_at IS NULL AND account = $1 AND (pg_catalog.cardinality(types) = 0 OR $2 = ANY (types))
ORDER BY id;
