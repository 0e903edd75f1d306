-- The held events with the ids $1 that match, sorted by id.
--
-- $2 the handler; NULL selects all   $3 the states; NULL selects all   $4 type   $5 the key that
-- the producer gave the event   $6 class of the last failure   $7 due at this time or later
-- $8 due before this time
--
-- Locks   none.
-- Index   held_pkey (id).
-- Order   by id.
-- Called  by Reader.Page.
SELECT true AS wanted, false AS last,
       id, handler::text, coalesce(postroom.clipped(dedupe_key, 1024), '') AS dedupe_key, coalesce(postroom.clipped(chain, 1024), '') AS chain,
       coalesce(pos, 0) AS pos, state, revision, coalesce(replay, 0) AS replay, replays, 0::bigint AS audit,
       postroom.clipped(source, 1024) AS source, postroom.clipped(event_id, 1024) AS event_id, postroom.clipped(type, 1024) AS type,
       postroom.clipped(subject, 1024) AS subject, coalesce(postroom.clipped(key, 1024), '') AS key,
       coalesce(postroom.clipped(correlation_id, 1024), '') AS correlation_id, coalesce(postroom.clipped(causation_id, 1024), '') AS causation_id,
       postroom.clamped(logged_at) AS logged_at, octet_length(data) AS size,
       held_at, first_failed_at, next_at, dead_at, NULL::timestamptz AS discarded_at, coalesce(claimed_by, '') AS claimed_by, solitary, attempts::int,
       coalesce(class, '') AS class, coalesce(encode(cause, 'hex'), '') AS cause, coalesce(failures -> -1 ->> 'text', '') AS error, NULL::jsonb AS failures
FROM (
    SELECT *, CASE WHEN dead_at IS NOT NULL THEN 'dead'
              WHEN next_at IS NULL THEN 'waiting'
              WHEN claimed_by IS NOT NULL THEN CASE WHEN next_at > now() OR handler = 'outbox' THEN 'running' ELSE 'abandoned' END
              WHEN next_at <= now() THEN 'due'
              WHEN class IS NULL AND chain IS NULL THEN 'scheduled'
              ELSE 'retrying' END AS state
    FROM postroom.held
    WHERE id = ANY ($1::bigint[])
) h
WHERE ($2::text IS NULL OR handler = $2) AND ($3::text[] IS NULL OR state = ANY ($3)) AND ($4::text IS NULL OR type = $4)
  AND ($5::text IS NULL OR key = $5) AND ($6::text IS NULL OR class = $6)
  AND ($7::timestamptz IS NULL OR next_at >= $7) AND ($8::timestamptz IS NULL OR next_at < $8)
ORDER BY id;
