-- The sources of the events with id $1, from the replays and the audit. The log may no longer have
-- these events.
--
-- Locks   none.
-- Index   replay_event_event (event_id), audit_event (event_id).
-- Called  by Inspector.Event, if no source is given.
SELECT source FROM (SELECT source FROM postroom.replay_event WHERE event_id = $1::text LIMIT 100) i
UNION
SELECT source FROM (SELECT source FROM postroom.audit WHERE event_id = $1::text AND source IS NOT NULL LIMIT 100) a;
