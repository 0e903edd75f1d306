-- The held events that match, and the state of each. Events with a due time come first, the
-- earliest first. Then come events that wait behind an earlier event of their key. Dead events
-- match only by their ids. An outgoing event that is due counts as running, because the relay
-- may be publishing it.
--
-- $1 ids   $2 handler   $3 states   $4 type   $5 the key that the producer gave the event
-- $6 class of the last failure   $7 due at this time or later   $8 due before this time
-- $9 how many events at most. A parameter that is NULL sets no condition.
--
-- Locks   none.
-- Index   held_pkey (id) for ids; held_key (left(key, 255)) for a key; held_due (handler, next_at, pos) and held_chain_pos
--         (handler, key, pos) for a handler; without these it reads all held events.
-- Order   by time, then by key and place.
-- Called  by Store.Select.
SELECT id, state
FROM (
    SELECT id, next_at, chain, pos, type, key, class,
           CASE WHEN dead_at IS NOT NULL THEN 'dead'
                WHEN next_at IS NULL THEN 'waiting'
                WHEN next_at <= clock_timestamp() THEN CASE WHEN handler = 'outbox' THEN 'running' ELSE 'due' END
                WHEN claimed_by IS NOT NULL THEN 'running'
                WHEN class IS NULL AND chain IS NULL THEN 'scheduled'
                ELSE 'retrying' END AS state
    FROM postroom.held
    WHERE ($1::bigint[] IS NULL AND dead_at IS NULL OR id = ANY ($1)) AND ($2::text IS NULL OR handler = $2)
      AND ($7::timestamptz IS NULL OR next_at >= $7) AND ($8::timestamptz IS NULL OR next_at < $8)
) h
WHERE ($3::text[] IS NULL OR state = ANY ($3)) AND ($4::text IS NULL OR type = $4) AND ($5::text IS NULL OR left(key, 255) = left($5, 255) AND key = $5)
  AND ($6::text IS NULL OR class = $6)
ORDER BY next_at, chain, pos, id
LIMIT $9;
