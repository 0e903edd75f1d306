-- The replays of the event with id $2 of source $1. If $1 is empty: the replays of the events of
-- all sources with this id.
--
-- Locks   none.
-- Index   replay_event_event (event_id), replay_pkey (id).
-- Order   by replay.
-- Called  by Inspector.Event.
SELECT i.replay, i.held, i.handler, i.source, j.actor, j.reason, j.state, j.created_at, i.released_at, coalesce(i.outcome, ''), i.ended_at,
       coalesce(i.failures, '[]')
FROM (SELECT * FROM postroom.replay_event WHERE event_id = $2::text AND ($1::text = '' OR source = $1) LIMIT 100) i
CROSS JOIN LATERAL (SELECT * FROM postroom.replay WHERE replay.id = i.replay) j
ORDER BY i.replay, i.held;
