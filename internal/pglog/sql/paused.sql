-- The operator's pause of the log's relays. If there is no pause, the statement returns no row. A
-- relay asks once a second.
--
-- Locks   none.
-- Index   pause_pkey (handler).
-- Called  by Log.Paused.
SELECT paused_at, until, actor, reason
FROM postroom.pause
WHERE handler = 'outbox' AND (until IS NULL OR until > now());
