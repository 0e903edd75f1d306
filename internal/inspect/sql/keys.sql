-- Keys with held events. Each row has a key, its first event, and the number of events that wait
-- behind the first event, counted up to 1,000.
--
-- $1 the handler; empty selects all   $2 the state of the first event; empty selects all
-- $3, $4 the handler and key after which the page begins   $5 the maximum number of keys
--
-- The statement reads at most 10,000 keys. It returns key 10,000 even if this key does not match,
-- because the next page begins after this key.
--
-- Locks   none.
-- Index   held_chain_pos (handler, chain, pos), for each key that is read.
-- Order   by handler and key, as in the index; a sort would read all keys.
-- Called  by Inspector.Keys.
WITH RECURSIVE k (handler, chain, n) AS (
    (SELECT held.handler::text, held.chain, 1 FROM postroom.held
     WHERE (held.handler, held.chain) > ($3::text, $4::text) AND held.chain IS NOT NULL
     ORDER BY held.handler, held.chain LIMIT 1)
    UNION ALL
    SELECT next.handler, next.chain, k.n + 1
    FROM k
    CROSS JOIN LATERAL (SELECT held.handler::text, held.chain FROM postroom.held
                        WHERE (held.handler, held.chain) > (k.handler, k.chain) AND held.chain IS NOT NULL
                        ORDER BY held.handler, held.chain LIMIT 1) next
    WHERE k.n < 10000 AND ($1::text = '' OR k.handler = $1)
)
SELECT k.handler, k.chain, $2::text = '' OR head.state = $2 AS wanted, k.n = 10000 AS last,
       head.id, head.source, head.event_id, head.type, head.state, head.class, head.failure, head.attempts, head.next_at, head.since,
       greatest(extract(epoch FROM now() - head.since), 0)::float8 AS age, behind.events
FROM k
CROSS JOIN LATERAL (
    SELECT id, pos, source, event_id, type, coalesce(class, '') AS class, attempts,
           coalesce(failures -> -1 ->> 'text', '') AS failure, next_at, coalesce(dead_at, first_failed_at, held_at) AS since,
           CASE WHEN dead_at IS NOT NULL THEN 'dead'
                WHEN next_at IS NULL THEN 'waiting'
                WHEN claimed_by IS NOT NULL THEN CASE WHEN next_at > now() OR handler = 'outbox' THEN 'running' ELSE 'abandoned' END
                WHEN next_at <= now() THEN 'due'
                ELSE 'retrying' END AS state
    FROM postroom.held
    WHERE held.handler = k.handler AND held.chain = k.chain
    ORDER BY pos
    LIMIT 1
) head
CROSS JOIN LATERAL (
    SELECT count(*) AS events
    FROM (SELECT FROM postroom.held WHERE held.handler = k.handler AND held.chain = k.chain AND held.pos > head.pos LIMIT 1000) b
) behind
WHERE ($1::text = '' OR k.handler = $1) AND ($2::text = '' OR head.state = $2 OR k.n = 10000)
LIMIT $5;
