-- Returns for each saga how many instances are stuck, which instance has waited for the longest
-- time, and whether more may be stuck. The statement reads the 10,000 instances that have waited
-- for the longest time. If more than 10,000 instances began to wait in one hour, it finds some of
-- them up to an hour late.
--
-- Locks   none.
-- Index   saga_waiting (name, waits_hour, key): the beginning of each saga's part.
-- Order   by saga.
-- Called  by StuckOf.
SELECT d.name, waiting.stuck, waiting.looked >= 10000, waiting.key, waiting.step, waiting.since, extract(epoch FROM now() - waiting.since)::float8
FROM (SELECT name, max(stuck) AS stuck FROM postroom.saga_definition GROUP BY name) d
CROSS JOIN LATERAL (
    SELECT count(*) AS looked, count(*) FILTER (WHERE waits_since < now() - d.stuck) AS stuck, min(waits_since) AS since,
           (pg_catalog.array_agg(key ORDER BY waits_since, key))[1] AS key, (pg_catalog.array_agg(step ORDER BY waits_since, key))[1] AS step
    FROM (
        SELECT key, step, waits_since FROM postroom.saga
        WHERE name = d.name AND ended_at IS NULL AND waits_hour <= now() - d.stuck
        ORDER BY waits_hour, key
        LIMIT 10000
    ) first
) waiting
WHERE waiting.stuck > 0
ORDER BY d.name
