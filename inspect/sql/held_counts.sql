-- For each handler and state: how many events are held, how long the oldest has been held or dead,
-- and how long the first has been due. For each handler also: how many keys its held events block.
-- The statement reads at most 100,000 rows of each handler.
--
-- Locks   none.
-- Index   held_owed (handler, dedupe_key), once for each handler and then its rows; held_outgoing (pos).
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
    FROM holder h
    CROSS JOIN LATERAL (SELECT key, next_at, dead_at, held_at, claimed_by, class FROM postroom.held
                        WHERE held.handler = h.handler AND dedupe_key IS NOT NULL LIMIT 100000) o
    WHERE h.handler IS NOT NULL
    UNION ALL
    (SELECT 'outbox', key, next_at, dead_at, held_at, claimed_by, class FROM postroom.held
     WHERE handler = 'outbox' ORDER BY pos LIMIT 100000)
), sorted AS (
    SELECT *,
           CASE WHEN dead_at IS NOT NULL THEN 'dead'
                WHEN next_at IS NULL THEN 'waiting'
                WHEN claimed_by IS NOT NULL THEN CASE WHEN next_at > now() OR handler = 'outbox' THEN 'running' ELSE 'abandoned' END
                WHEN next_at <= now() THEN 'due'
                WHEN class IS NULL AND key IS NULL THEN 'scheduled'
                ELSE 'retrying' END AS state
    FROM looked
), counted AS (
    SELECT handler, state, count(*) AS events,
           coalesce(greatest(extract(epoch FROM now() - min(coalesce(dead_at, held_at))), 0), 0)::float8 AS age,
           coalesce(greatest(extract(epoch FROM now() - min(next_at)), 0), 0)::float8 AS overdue
    FROM sorted
    GROUP BY handler, state
)
SELECT c.*, sum(c.events) OVER (PARTITION BY c.handler) >= 100000::numeric AS more, k.keys
FROM counted c
JOIN (SELECT handler, pg_catalog.count(DISTINCT key) AS keys FROM looked GROUP BY handler) k USING (handler)
ORDER BY c.handler, c.state;
