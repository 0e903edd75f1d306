-- Of each saga how many instances are stuck, counted up to 10,000, and which has waited for the
-- longest. If more than these begin to wait in one hour, it is another one of that hour.
--
-- Locks   none.
-- Index   saga_waiting (name, waits_hour): the beginning of each saga's part.
-- Order   by saga.
-- Called  by StuckOf.
SELECT d.name, waiting.instances, waiting.key, waiting.step, waiting.since, extract(epoch FROM now() - waiting.since)::float8
FROM (SELECT name, max(stuck) AS stuck FROM postroom.saga_definition GROUP BY name) d
CROSS JOIN LATERAL (
    SELECT count(*) AS instances, min(waits_since) AS since,
           (array_agg(key ORDER BY waits_since, key))[1] AS key, (array_agg(step ORDER BY waits_since, key))[1] AS step
    FROM (
        SELECT key, step, waits_since FROM postroom.saga
        WHERE name = d.name AND ended_at IS NULL AND waits_hour <= now() - d.stuck AND waits_since < now() - d.stuck
        ORDER BY waits_hour
        LIMIT 10000
    ) first
) waiting
WHERE waiting.instances > 0
ORDER BY d.name
