-- The operator's pause of the log's relays; no row if there is none. A relay asks each second.
--
-- Locks   none.
-- Index   pause_pkey (handler).
-- Called  by Log.Paused.
SELECT paused_at, until, actor, reason
FROM postroom.pause
WHERE handler = 'outbox' AND (until IS NULL OR until > now());
