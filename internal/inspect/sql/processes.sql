-- The processes that run handlers. The result includes processes that have probably died: they did
-- not renew their row for a minute.
--
-- Locks   none.
-- Index   none; there are as many rows as processes.
-- Order   by name.
-- Called  by Inspector.Status, Inspector.Handlers and Inspector.Tables.
SELECT name, handlers, started_at, seen_at, greatest(extract(epoch FROM now() - seen_at), 0)::float8 AS silent,
       seen_at > now() - interval '1 minute' AS alive, extract(epoch FROM longest_window)::float8 AS longest_window, paused
FROM postroom.node
ORDER BY name
LIMIT 1000;
