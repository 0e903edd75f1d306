-- The handlers that are paused now. A pause of the relays has outbox as its handler.
--
-- Locks   none.
-- Index   none; there are as many rows as handlers that were paused.
-- Order   by name.
-- Called  by Store.Pauses.
SELECT handler, paused_at, until, actor, reason
FROM postroom.pause
WHERE until IS NULL OR until > now()
ORDER BY handler;
