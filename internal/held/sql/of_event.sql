-- The rows of held that have the event with id $2 of source $1. If $1 is empty: the rows that have
-- an event of any source with this id. The statement leaves out a time that no program can read.
--
-- Locks   none.
-- Index   held_event (event_id).
-- Called  by Reader.OfEvent.
SELECT id, handler::text, coalesce(dedupe_key, '') AS dedupe_key, coalesce(chain, '') AS chain, coalesce(pos, 0) AS pos,
       CASE WHEN dead_at IS NOT NULL THEN 'dead'
            WHEN next_at IS NULL THEN 'waiting'
            WHEN claimed_by IS NOT NULL THEN CASE WHEN next_at > now() OR handler = 'outbox' THEN 'running' ELSE 'abandoned' END
            WHEN next_at <= now() THEN 'due'
            WHEN class IS NULL AND chain IS NULL THEN 'scheduled'
            ELSE 'retrying' END AS state,
       revision, coalesce(replay, 0) AS replay, replays, 0::bigint AS audit,
       source, event_id, type, subject, coalesce(key, '') AS key, coalesce(correlation_id, '') AS correlation_id,
       coalesce(causation_id, '') AS causation_id, postroom.clamped(logged_at) AS logged_at, octet_length(data) AS size,
       held_at, first_failed_at, next_at, dead_at, NULL::timestamptz AS discarded_at, coalesce(claimed_by, '') AS claimed_by, solitary, attempts::int,
       coalesce(class, '') AS class, coalesce(encode(cause, 'hex'), '') AS cause, coalesce(failures -> -1 ->> 'text', '') AS error, failures::jsonb
FROM postroom.held
WHERE event_id = $2::text AND ($1::text = '' OR source = $1)
ORDER BY id
LIMIT 100;
