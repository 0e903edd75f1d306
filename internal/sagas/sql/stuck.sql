-- Returns for each saga how many instances are stuck, which of them has waited for the longest
-- time, and whether more may be stuck. An instance is stuck if it has waited for longer than its
-- definition allows, or if its deadline was more than five minutes ago. The statement reads the
-- 10,000 instances that came first to the hour in which they may be stuck. If more than 10,000
-- instances came to it in one hour, the statement finds some of them up to an hour late.
--
-- Locks   none.
-- Index   saga_waiting (name, waits_hour, key): the beginning of each saga's part.
-- Order   by saga.
-- Called  by StuckOf.
SELECT d.name, waiting.stuck, waiting.looked >= 10000, waiting.key, waiting.step, waiting.since, extract(epoch FROM now() - waiting.since)::float8
FROM postroom.saga_known d
CROSS JOIN LATERAL (
    SELECT count(*) AS looked, count(*) FILTER (WHERE is_stuck) AS stuck, min(waits_since) FILTER (WHERE is_stuck) AS since,
           (pg_catalog.array_agg(key ORDER BY waits_since, key) FILTER (WHERE is_stuck))[1] AS key,
           (pg_catalog.array_agg(step ORDER BY waits_since, key) FILTER (WHERE is_stuck))[1] AS step
    FROM (
        SELECT key, step, waits_since, coalesce(deadline + interval '5 minutes', waits_since + d.stuck) < now() AS is_stuck
        FROM postroom.saga
        WHERE name = d.name AND ended_at IS NULL AND waits_hour <= now() - d.stuck
        ORDER BY waits_hour, key
        LIMIT 10000
    ) first
) waiting
WHERE waiting.stuck > 0
ORDER BY d.name
