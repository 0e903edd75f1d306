-- The complete event with id $1, if it is held or was discarded. The statement leaves out a time
-- that no program can read.
--
-- Locks   none.
-- Index   held_pkey (id), archive_pkey (id).
-- Called  by reader.show.
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
       coalesce(class, '') AS class, coalesce(encode(cause, 'hex'), '') AS cause, coalesce(failures -> -1 ->> 'text', '') AS error, failures::jsonb,
       content_type, postroom.clamped(occurred_at) AS occurred_at, coalesce(trace_parent, ''), headers, data, raw_headers
FROM postroom.held
WHERE id = $1
UNION ALL
SELECT id, handler::text, coalesce(dedupe_key, ''), '', coalesce(pos, 0), 'discarded',
       revision, coalesce(replay, 0), replays, audit,
       source, event_id, type, subject, coalesce(key, ''), coalesce(correlation_id, ''),
       coalesce(causation_id, ''), postroom.clamped(logged_at), octet_length(data),
       held_at, first_failed_at, NULL::timestamptz, dead_at, discarded_at, '', solitary, attempts::int,
       coalesce(class, ''), coalesce(encode(cause, 'hex'), ''), coalesce(failures -> -1 ->> 'text', ''), failures::jsonb,
       content_type, postroom.clamped(occurred_at), coalesce(trace_parent, ''), headers, data, raw_headers
FROM postroom.archive
WHERE id = $1;
