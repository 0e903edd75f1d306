-- The dead events that match the filter $1 to $11, the last to die first, from behind
-- the one that died at $12 with id $13 on, or from the start where $12 is NULL; $14 of
-- them at the most.
-- Texts that no event of ours has are cut, and a time that no program reads is left out: one
-- such row must not make the list unreadable.
--
-- Locks   none.
-- Index   held_dead (dead_at, id), held_dead_handler (handler, dead_at, id), held_dead_cause (fingerprint, dead_at, id),
--         held_event (event_id) or held_pkey (id), by what is asked for.
-- Called  by Store.List.
SELECT id, handler, 'dead' AS state, dead_at, NULL::timestamptz AS discarded_at, held_at, attempts, class, encode(fingerprint, 'hex') AS cause,
       failures -> -1 ->> 'text' AS error, revision, job, coalesce(postroom.clamped(logged_at), held_at) AS logged_at,
       postroom.clipped(source, 1024) AS source, postroom.clipped(event_id, 1024) AS event_id, postroom.clipped(type, 1024) AS type,
       postroom.clipped(subject, 1024) AS subject, postroom.clipped(event_key, 1024) AS event_key,
       octet_length(data) AS size
FROM postroom.dead_letters($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
WHERE $12::timestamptz IS NULL OR (dead_at, id) < ($12, $13::bigint)
ORDER BY dead_at DESC, id DESC
LIMIT $14;
