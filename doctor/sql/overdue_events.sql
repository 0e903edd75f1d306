-- For each handler that a living process runs: the types of the events that have been due for
-- longer than $1 and that no process has claimed. For each handler, the statement reads the 1,000
-- events that have been due for the longest time.
--
-- Locks   none.
-- Index   held_due (handler, next_at, pos), once for each handler.
-- Order   by handler and type.
-- Called  by checkOverdue.
SELECT h.handler, due.type, count(*) AS events, extract(epoch FROM now() - min(due.next_at))::float8 AS overdue
FROM (SELECT DISTINCT pg_catalog.unnest(handlers) AS handler FROM postroom.node WHERE seen_at > now() - interval '1 minute') h
CROSS JOIN LATERAL (
    SELECT type, next_at, claimed_by FROM postroom.held
    WHERE held.handler = h.handler AND next_at < now() - $1::interval
    ORDER BY next_at, pos
    LIMIT 1000
) due
WHERE due.claimed_by IS NULL
GROUP BY h.handler, due.type
ORDER BY h.handler, due.type;
