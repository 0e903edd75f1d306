-- Pause handler $1, or the relays (outbox), for $2, or without an end if $2 is NULL.
-- $3 who does it   $4 why
--
-- Locks   the handler's row.
-- Index   pause_pkey (handler).
-- Called  by Store.pause.
INSERT INTO postroom.pause (handler, until, actor, reason)
VALUES ($1, now() + $2::interval, $3, $4)
ON CONFLICT (handler) DO UPDATE SET paused_at = now(), until = excluded.until, actor = excluded.actor, reason = excluded.reason;
