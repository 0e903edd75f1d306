-- Of each saga how many instances are stuck, counted up to 10,000, and which has waited for the
-- longest. If more than these begin to wait in one hour, it is another one of that hour.
--
-- Locks   none.
-- Index   saga_waiting (name, waits_hour): the beginning of each saga's part.
-- Order   by saga.
-- Called  by StuckOf.
SELECT d.name, waiting.instances, oldest.key, oldest.step, oldest.waits_since, extract(epoch FROM now() - oldest.waits_since)::float8
FROM (SELECT name, max(stuck) AS stuck FROM postroom.saga_definition GROUP BY name) d
CROSS JOIN LATERAL (
    SELECT count(*) AS instances, (array_agg(key ORDER BY waits_since))[1] AS key
    FROM (
        SELECT key, waits_since FROM postroom.saga
        WHERE name = d.name AND ended_at IS NULL AND waits_hour <= now() - d.stuck AND waits_since < now() - d.stuck
        ORDER BY waits_hour
        LIMIT 10000
    ) first
) waiting
JOIN postroom.saga oldest ON oldest.name = d.name AND oldest.key = waiting.key
WHERE waiting.instances > 0
ORDER BY d.name
