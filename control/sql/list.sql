-- What is paused now: handlers, and the relays under the name outbox.
--
-- Locks   none.
-- Index   none; there are as many rows as handlers that were paused.
-- Order   by name.
-- Called  by Store.List.
SELECT handler, paused_at, until, actor, reason
FROM postroom.pause
WHERE until IS NULL OR until > now()
ORDER BY handler;
