-- For each handler and state: how many events are held, how long the oldest has been held or dead,
-- and how long the first has been due. For each handler also: how many keys its held events block.
-- The statement reads at most 10,000 dead events of each handler, as many waiting ones, and as many of
-- the others, the first that are due. So however many events are in one state, it finds those in others.
-- It compares pairs, so that held_dead_handler is the only index that fits. With held_dead, the server
-- would read all dead events of one handler to find that another has none.
--
-- Locks   none.
-- Index   held_owed (handler, dedupe_key), once for each handler; then for its rows held_due (handler, next_at,
--         pos), held_dead_handler (handler, dead_at, id), held_waiting (handler, held_at).
-- Order   by handler.
-- Called  by Inspector.Status and Inspector.Handlers.
WITH RECURSIVE holder AS (
    (SELECT handler::text FROM postroom.held WHERE dedupe_key IS NOT NULL ORDER BY held.handler, dedupe_key LIMIT 1)
    UNION ALL
    SELECT (SELECT held.handler::text FROM postroom.held
            WHERE dedupe_key IS NOT NULL AND held.handler > holder.handler ORDER BY held.handler, dedupe_key LIMIT 1)
    FROM holder
    WHERE holder.handler IS NOT NULL
), looked AS (
    SELECT h.handler, o.*
    FROM (SELECT handler FROM holder WHERE handler IS NOT NULL UNION ALL SELECT 'outbox') h
    CROSS JOIN LATERAL (
        (SELECT chain, next_at, dead_at, held_at, claimed_by, class FROM postroom.held
         WHERE held.handler = h.handler AND next_at IS NOT NULL ORDER BY next_at, pos LIMIT 10000)
        UNION ALL
        --guard:the-dead-are-counted-by-themselves false
        (SELECT chain, next_at, dead_at, held_at, claimed_by, class FROM postroom.held
         WHERE dead_at IS NOT NULL
           AND (held.handler, dead_at) >= (h.handler, '-infinity'::timestamptz) AND (held.handler, dead_at) <= (h.handler, 'infinity'::timestamptz)
         ORDER BY held.handler, dead_at, id LIMIT 10000)
        UNION ALL
        (SELECT chain, next_at, dead_at, held_at, claimed_by, class FROM postroom.held
         WHERE held.handler = h.handler AND coalesce(next_at, dead_at) IS NULL ORDER BY held_at LIMIT 10000)
    ) o
), sorted AS (
    SELECT *,
           CASE WHEN dead_at IS NOT NULL THEN 'dead'
                WHEN next_at IS NULL THEN 'waiting'
                WHEN claimed_by IS NOT NULL THEN CASE WHEN next_at > now() OR handler = 'outbox' THEN 'running' ELSE 'abandoned' END
                WHEN next_at <= now() THEN 'due'
                WHEN class IS NULL AND chain IS NULL THEN 'scheduled'
                ELSE 'retrying' END AS state
    FROM looked
), counted AS (
    SELECT handler, state, count(*) AS events,
           sum(count(*)) OVER (PARTITION BY handler, state OPERATOR(pg_catalog.=) 'dead', state OPERATOR(pg_catalog.=) 'waiting') >= 10000::numeric AS more,
           coalesce(greatest(extract(epoch FROM now() - min(coalesce(dead_at, held_at))), 0), 0)::float8 AS age,
           coalesce(greatest(extract(epoch FROM now() - min(next_at)), 0), 0)::float8 AS overdue
    FROM sorted
    GROUP BY handler, state
)
SELECT c.handler, c.state, c.events, c.age, c.overdue, c.more, k.keys
FROM counted c
JOIN (SELECT handler, pg_catalog.count(chain) AS keys FROM (SELECT DISTINCT handler, chain FROM looked) k GROUP BY handler) k USING (handler)
ORDER BY c.handler, c.state;
