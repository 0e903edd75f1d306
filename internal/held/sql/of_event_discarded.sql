-- The rows of archive that have the event with id $2 of source $1. If $1 is empty: the rows that
-- have an event of any source with this id. The statement leaves out a time that no program can
-- read.
--
-- Locks   none.
-- Index   archive_event (event_id).
-- Called  by Reader.OfEvent.
SELECT id, handler::text, coalesce(dedupe_key, ''), '', coalesce(pos, 0), 'discarded',
       revision, coalesce(replay, 0), replays, audit,
       source, event_id, type, subject, coalesce(key, ''), coalesce(correlation_id, ''),
       coalesce(causation_id, ''), postroom.clamped(logged_at), octet_length(data),
       held_at, first_failed_at, NULL::timestamptz, dead_at, discarded_at, '', solitary, attempts::int,
       coalesce(class, ''), coalesce(encode(cause, 'hex'), ''), coalesce(failures -> -1 ->> 'text', ''), failures::jsonb
FROM postroom.archive
WHERE event_id = $2::text AND ($1::text = '' OR source = $1)
ORDER BY id
LIMIT 100;
