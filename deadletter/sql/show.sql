-- The event with the id $1, whole, whether it is held or was discarded.
-- A time that no program reads is left out.
--
-- Locks   none.
-- Index   held_pkey (id), archive_pkey (id).
-- Called  by Store.whole.
SELECT id, handler,
       CASE WHEN dead_at IS NOT NULL THEN 'dead' WHEN claimed_by IS NOT NULL THEN 'running' WHEN next_at IS NULL THEN 'waiting'
            WHEN class IS NULL AND handler = 'outbox' THEN 'scheduled' ELSE 'retrying' END AS state,
       dead_at, NULL::timestamptz AS discarded_at, held_at, attempts, class, encode(fingerprint, 'hex') AS cause,
       failures -> -1 ->> 'text' AS error, revision, job, coalesce(postroom.clamped(logged_at), held_at) AS logged_at, source, event_id, type, subject, event_key,
       octet_length(data) AS size, dedupe_key, key, pos, next_at, claimed_by, solitary, first_failed_at, failures, content_type,
       correlation_id, causation_id, postroom.clamped(occurred_at) AS occurred_at, trace_parent, headers, data, raw_headers
FROM postroom.held
WHERE id = $1
UNION ALL
SELECT id, handler, 'discarded', dead_at, discarded_at, held_at, attempts, class, encode(fingerprint, 'hex'),
       failures -> -1 ->> 'text', revision, job, coalesce(postroom.clamped(logged_at), held_at), source, event_id, type, subject, event_key,
       octet_length(data), dedupe_key, NULL, pos, NULL, NULL, solitary, first_failed_at, failures, content_type,
       correlation_id, causation_id, postroom.clamped(occurred_at), trace_parent, headers, data, raw_headers
FROM postroom.archive
WHERE id = $1;
