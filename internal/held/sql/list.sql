-- The dead events that match the filter $1 to $11, the last to die first, from behind
-- the one that died at $12 with id $13 on, or from the start where $12 is NULL; $14 of
-- them at the most.
-- Texts that no event of ours has are cut, and a time that no program reads is left out: one
-- such row must not make the list unreadable.
--
-- Locks   none.
-- Index   held_dead (dead_at, id), held_dead_handler (handler, dead_at, id), held_dead_cause (fingerprint, dead_at, id),
--         held_event (event_id) or held_pkey (id), by what is asked for.
-- Called  by Reader.List.
SELECT id, handler::text, coalesce(postroom.clipped(dedupe_key, 1024), '') AS dedupe_key, coalesce(postroom.clipped(key, 1024), '') AS key,
       coalesce(pos, 0) AS pos, 'dead' AS state, revision, coalesce(job, 0) AS job, replays, 0::bigint AS audit,
       postroom.clipped(source, 1024) AS source, postroom.clipped(event_id, 1024) AS event_id, postroom.clipped(type, 1024) AS type,
       postroom.clipped(subject, 1024) AS subject, coalesce(postroom.clipped(event_key, 1024), '') AS event_key,
       coalesce(postroom.clipped(correlation_id, 1024), '') AS correlation_id, coalesce(postroom.clipped(causation_id, 1024), '') AS causation_id,
       postroom.clamped(logged_at) AS logged_at, octet_length(data) AS size,
       held_at, first_failed_at, next_at, dead_at, NULL::timestamptz AS discarded_at, coalesce(claimed_by, '') AS claimed_by, solitary, attempts::int,
       coalesce(class, '') AS class, coalesce(encode(fingerprint, 'hex'), '') AS cause, coalesce(failures -> -1 ->> 'text', '') AS error, NULL::jsonb AS failures
FROM postroom.dead_letters($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
WHERE $12::timestamptz IS NULL OR (dead_at, id) < ($12, $13::bigint)
ORDER BY dead_at DESC, id DESC
LIMIT $14;
