-- The handlers that operators have paused. The name outbox means the relays.
--
-- Locks   none.
-- Index   none; there are as many rows as handlers that were paused.
-- Called  by Inspector.Handlers and Inspector.Status.
SELECT handler, paused_at, until, actor, reason
FROM postroom.pause
WHERE until IS NULL OR until > now()
LIMIT 1000;
