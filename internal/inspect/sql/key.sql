-- One key with held events, with the columns of keys.sql.
--
-- $1 handler   $2 key
--
-- Locks   none.
-- Index   held_chain_pos (handler, chain, pos).
-- Called  by Inspector.Keys.
SELECT head.handler, head.chain, true AS wanted, false AS last,
       head.id, head.source, head.event_id, head.type, head.state, head.class, head.failure, head.attempts, head.next_at, head.since,
       greatest(extract(epoch FROM now() - head.since), 0)::float8 AS age, behind.events
FROM (
    SELECT handler::text, chain, id, pos, source, event_id, type, coalesce(class, '') AS class, attempts,
           coalesce(failures -> -1 ->> 'text', '') AS failure, next_at, coalesce(dead_at, first_failed_at, held_at) AS since,
           CASE WHEN dead_at IS NOT NULL THEN 'dead'
                WHEN next_at IS NULL THEN 'waiting'
                WHEN claimed_by IS NOT NULL THEN CASE WHEN next_at > now() OR handler = 'outbox' THEN 'running' ELSE 'abandoned' END
                WHEN next_at <= now() THEN 'due'
                ELSE 'retrying' END AS state
    FROM postroom.held
    WHERE handler = $1 AND chain = $2
    ORDER BY pos
    LIMIT 1
) head
CROSS JOIN LATERAL (
    SELECT count(*) AS events
    FROM (SELECT FROM postroom.held WHERE held.handler = $1 AND held.chain = $2 AND held.pos > head.pos LIMIT 1000) b
) behind;
