-- Counts for each saga the instances that run, the instances that undo their steps, and the stuck
-- instances of both kinds. Also returns the longest time that an instance has waited for a step
-- without a deadline, or since a deadline. The first two numbers count up to 10,000 instances. Stuck
-- instances are those of stuck.sql. For the longest time, the statement reads only the first 1,000
-- by the same index. So if more instances have the same hour, it may be up to an hour too short. And if
-- so many wait for deadlines that are still to come, it may lack waits that are shorter than stuck.
--
-- The statement sorts as the index does, so that it never reads the complete table.
--
-- Locks   none.
-- Index   saga_listed (name, state, started_at, key); saga_waiting (name, waits_hour, key).
-- Order   by saga.
-- Called  by CountsOf.
SELECT d.name, running.instances, compensating.instances, stuck.instances,
       coalesce(greatest(extract(epoch FROM now() - oldest.since), 0), 0)::float8
FROM postroom.saga_known d
CROSS JOIN LATERAL (
    SELECT count(*) AS instances
    FROM (SELECT FROM postroom.saga WHERE name = d.name AND state = 'running' ORDER BY started_at LIMIT 10000) s
) running
CROSS JOIN LATERAL (
    SELECT count(*) AS instances
    FROM (SELECT FROM postroom.saga WHERE name = d.name AND state = 'compensating' ORDER BY started_at LIMIT 10000) s
) compensating
CROSS JOIN LATERAL (
    SELECT count(*) FILTER (WHERE coalesce(deadline + interval '5 minutes', waits_since + d.stuck) < now()) AS instances
    FROM (
        SELECT waits_since, deadline FROM postroom.saga
        WHERE name = d.name AND ended_at IS NULL AND waits_hour <= now() - d.stuck
        ORDER BY waits_hour
        LIMIT 10000
    ) s
) stuck
CROSS JOIN LATERAL (
    SELECT min(coalesce(deadline, waits_since)) AS since
    FROM (SELECT waits_since, deadline FROM postroom.saga WHERE name = d.name AND ended_at IS NULL ORDER BY waits_hour LIMIT 1000) s
) oldest
ORDER BY d.name
