-- Pause handler $1, or the relays (outbox), for the time $2. If $2 is NULL, the pause has no end.
-- $3 the actor   $4 the reason
--
-- Locks   the handler's row.
-- Index   pause_pkey (handler).
-- Called  by Store.pause.
INSERT INTO postroom.pause (handler, until, actor, reason)
VALUES ($1, now() + $2::interval, $3, $4)
ON CONFLICT (handler) DO UPDATE SET paused_at = now(), until = excluded.until, actor = excluded.actor, reason = excluded.reason;
