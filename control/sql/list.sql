-- The handlers that are paused now. If the relays are paused, they have the name outbox.
--
-- Locks   none.
-- Index   none; there are as many rows as handlers that were paused.
-- Order   by name.
-- Called  by Store.List.
SELECT handler, paused_at, until, actor, reason
FROM postroom.pause
WHERE until IS NULL OR until > now()
ORDER BY handler;
