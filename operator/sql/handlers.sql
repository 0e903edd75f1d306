-- The handlers that a process runs now or ran before.
--
-- Locks   none.
-- Index   none; node has one row for each process, and the other tables one row for each handler.
-- Order   by name.
-- Called  by Store.Handlers.
SELECT handler FROM postroom.subscription
UNION
SELECT handler FROM postroom.dedupe_window
UNION
SELECT pg_catalog.unnest(handlers) FROM postroom.node
ORDER BY 1;
