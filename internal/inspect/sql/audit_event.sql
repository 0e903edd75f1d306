-- The actions of operators on the event with id $1, the newest first: actions on this event alone,
-- actions that discarded it together with other events, and actions on replays that have the event.
-- $2 to $7 are $1 to $6 of audit.sql; the handler is that of the event. $8 is the event's source; if it
-- is empty, the source may be any. $9 is the replay; if it is 0, the replay may be any.
--
-- Locks   none.
-- Index   audit_event (event_id): as many entries as actions on the event; archive_event (event_id),
--         replay_event_event (event_id), audit_replay (replay), audit_pkey (id).
-- Order   by id, descending.
-- Called  by Inspector.Audit and Inspector.Event.
SELECT id, at, role, actor, action, reason, events, coalesce(handler, ''), coalesce(source, ''), coalesce(event_id, ''), coalesce(replay, 0), details,
       true AS wanted, false AS last
FROM postroom.audit
WHERE id IN (
    SELECT found.id
    FROM (
        --guard:the-newest-actions-on-an-event-are-found do (SELECT id, handler, source FROM postroom.audit WHERE event_id = $1::text LIMIT 1000)
        (SELECT id, handler, source FROM postroom.audit WHERE event_id = $1::text OFFSET 0)
        UNION ALL
        (SELECT audit, handler::text, source::text FROM postroom.archive WHERE event_id = $1::text OFFSET 0)
        UNION ALL
        (SELECT a.id, i.handler, i.source
         FROM (SELECT replay, handler, source FROM postroom.replay_event WHERE event_id = $1::text OFFSET 0) i
         CROSS JOIN LATERAL (SELECT id FROM postroom.audit WHERE audit.replay = i.replay OFFSET 0) a)
    ) found
    WHERE ($4::text = '' OR found.handler = $4) AND ($8::text = '' OR found.source IS NULL OR found.source = $8)
    OFFSET 0)
  AND ($2::text = '' OR actor = $2) AND ($3::text = '' OR action = $3)
  AND ($5::timestamptz IS NULL OR at >= $5) AND id < $6::bigint
  AND ($9::bigint = 0 OR replay = $9)
ORDER BY id DESC
LIMIT $7::int;
