-- The actions of operators on the event with id $1, the newest first. $2 to $7 are $1 to $6 of
-- audit.sql. $8 is the event's source; if it is empty, the source may be any. $9 is the replay;
-- if it is 0, the replay may be any.
--
-- Locks   none.
-- Index   audit_event (event_id): as many entries as actions on the event.
-- Order   by id, descending.
-- Called  by Inspector.Audit and Inspector.Event.
SELECT id, at, actor, action, reason, events, coalesce(handler, ''), coalesce(source, ''), coalesce(event_id, ''), coalesce(job, 0), details,
       true AS wanted, false AS last
--guard:the-newest-actions-on-an-event-are-found do FROM (SELECT * FROM postroom.audit WHERE event_id = $1::text LIMIT 1000) a
FROM (SELECT * FROM postroom.audit WHERE event_id = $1::text OFFSET 0) a
WHERE ($2::text = '' OR actor = $2) AND ($3::text = '' OR action = $3) AND ($4::text = '' OR handler = $4)
  AND ($5::timestamptz IS NULL OR at >= $5) AND id < $6::bigint AND ($8::text = '' OR source IS NULL OR source = $8)
  AND ($9::bigint = 0 OR job = $9)
ORDER BY id DESC
LIMIT $7::int;
