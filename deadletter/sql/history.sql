-- The actions of operators on the event with id $2 of source $1 at handler $3: actions on this
-- event alone, replays, and an action that discarded this event together with other events.
--
-- Locks   none.
-- Index   audit_event (event_id), replay_event_event (event_id), archive_event (event_id), audit_pkey (id).
-- Called  by Store.Get.
SELECT a.at, a.actor, a.action, a.reason, a.replay, '' AS outcome
FROM postroom.audit a
WHERE a.event_id = $2 AND (a.source = $1 OR a.source IS NULL) AND (a.handler = $3 OR a.handler IS NULL)
UNION ALL
SELECT a.at, a.actor, a.action, a.reason, a.replay, ''
FROM postroom.archive x
CROSS JOIN LATERAL (SELECT * FROM postroom.audit WHERE audit.id = x.audit AND audit.event_id IS NULL OFFSET 0) a
WHERE x.event_id = $2 AND x.source = $1 AND x.handler = $3
UNION ALL
SELECT coalesce(i.released_at, j.created_at), j.actor, 'replayed', j.reason, j.id, coalesce(i.outcome, 'open')
FROM postroom.replay_event i
JOIN postroom.replay j ON j.id = i.replay
WHERE i.event_id = $2 AND i.source = $1 AND i.handler = $3
ORDER BY 1;
