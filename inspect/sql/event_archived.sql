-- Where the event with id $2 of source $1 was discarded; of every source where $1 is
-- empty.
--
-- Locks   none.
-- Index   archive_event (event_id).
-- Called  by Inspector.Event.
SELECT id, handler::text, coalesce(dedupe_key, ''), source, type, subject, coalesce(event_key, ''), '' AS key, coalesce(pos, 0),
       'discarded' AS state, attempts::int, coalesce(class, ''), coalesce(failures::jsonb, '[]'), held_at, NULL::timestamptz, dead_at, '' AS claimed_by, solitary,
       revision, coalesce(job, 0), replays, logged_at, coalesce(causation_id, ''), coalesce(correlation_id, ''), discarded_at, audit
FROM postroom.archive
WHERE event_id = $2::text AND ($1::text = '' OR source = $1)
ORDER BY id
LIMIT 100;
