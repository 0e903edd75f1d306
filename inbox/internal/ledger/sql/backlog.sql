-- Count the held events of each handler of $1. For each handler the statement reads at most 10,000 dead
-- events, as many waiting ones, and as many of the others, the first that are due. A handler without held
-- events has a row with zeros.
--
-- Locks   none.
-- Index   held_due (handler, next_at, pos), held_dead_handler (handler, dead_at, id), held_waiting (handler, held_at).
-- Called  by Upkeep.Backlog.
SELECT h.handler,
       count(*) FILTER (WHERE next_at IS NOT NULL) AS retrying,
       count(*) FILTER (WHERE held_at IS NOT NULL AND next_at IS NULL AND dead_at IS NULL) AS waiting,
       count(*) FILTER (WHERE dead_at IS NOT NULL) AS dead,
       pg_catalog.count(DISTINCT chain) AS keys,
       coalesce(extract(epoch FROM now() - min(held_at) FILTER (WHERE next_at IS NOT NULL)), 0)::float8 AS retrying_age,
       coalesce(extract(epoch FROM now() - min(held_at) FILTER (WHERE next_at IS NULL AND dead_at IS NULL)), 0)::float8 AS waiting_age,
       coalesce(extract(epoch FROM now() - min(dead_at)), 0)::float8 AS dead_age,
       coalesce(greatest(extract(epoch FROM now() - min(next_at)), 0), 0)::float8 AS overdue
FROM pg_catalog.unnest($1::text[]) AS h (handler)
LEFT JOIN LATERAL (
    (SELECT chain, next_at, dead_at, held_at FROM postroom.held
     WHERE held.handler = h.handler AND next_at IS NOT NULL ORDER BY next_at, pos LIMIT 10000)
    UNION ALL
    --guard:an-inbox-counts-the-dead-by-themselves false
    (SELECT chain, next_at, dead_at, held_at FROM postroom.held
     WHERE held.handler = h.handler AND dead_at IS NOT NULL ORDER BY dead_at, id LIMIT 10000)
    UNION ALL
    (SELECT chain, next_at, dead_at, held_at FROM postroom.held
     WHERE held.handler = h.handler AND coalesce(next_at, dead_at) IS NULL ORDER BY held_at LIMIT 10000)
) held ON true
GROUP BY h.handler;
