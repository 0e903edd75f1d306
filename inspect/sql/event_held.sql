-- Where the event with id $2 of source $1 is held; of every source where $1 is empty.
--
-- Locks   none.
-- Index   held_event (event_id).
-- Called  by Inspector.Event.
SELECT id, handler::text, coalesce(dedupe_key, ''), source, type, subject, coalesce(event_key, ''), coalesce(key, ''), coalesce(pos, 0),
       CASE WHEN dead_at IS NOT NULL THEN 'dead'
            WHEN next_at IS NULL THEN 'waiting'
            WHEN claimed_by IS NOT NULL THEN CASE WHEN next_at > now() THEN 'running' ELSE 'abandoned' END
            WHEN next_at <= now() THEN 'due'
            WHEN class IS NULL AND key IS NULL THEN 'scheduled'
            ELSE 'retrying' END AS state,
       attempts::int, coalesce(class, ''), coalesce(failures::jsonb, '[]'), held_at, next_at, dead_at, coalesce(claimed_by, ''), solitary,
       revision, coalesce(job, 0), replays, logged_at, coalesce(causation_id, ''), coalesce(correlation_id, ''), NULL::timestamptz AS discarded_at, 0::bigint AS audit
FROM postroom.held
WHERE event_id = $2::text AND ($1::text = '' OR source = $1)
ORDER BY id
LIMIT 100;
