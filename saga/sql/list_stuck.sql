-- Stuck instances of saga $1 (empty: all sagas) in the states $2 at step $3 (empty: any step). In
-- the order of the list, they come after the instance of saga $5 with key $6 that has waited since
-- the hour $4 (waits_hour). The statement reads $7 instances of each saga, and returns at most $8.
--
-- mark and the other columns are as in list.sql.
--
-- Locks   none.
-- Index   saga_waiting (name, waits_hour, key), for each saga; the primary key.
-- Order   by the hour in which they began to wait, the earliest first, then by saga and key.
-- Called  by Store.List.
WITH looked AS MATERIALIZED (
    SELECT d.name, d.stuck, i.*
    FROM (SELECT name, stuck FROM postroom.saga_known WHERE $1 = '' OR name = $1) d
    CROSS JOIN LATERAL (
        SELECT s.*, row_number() OVER () AS place
        FROM (
            SELECT key, waits_hour, waits_since, deadline, state, step FROM postroom.saga
            WHERE name = d.name AND ended_at IS NULL AND waits_hour <= now() - d.stuck AND waits_hour >= $4 AND (waits_hour, name, key) > ($4, $5, $6)
            ORDER BY waits_hour, key
            LIMIT $7
        ) s
    ) i
), mark AS (
    SELECT waits_hour, name, key FROM looked WHERE place = $7 ORDER BY waits_hour, name, key LIMIT 1
), page AS (
    SELECT l.name, l.key FROM looked l
    WHERE coalesce(l.deadline + interval '5 minutes', l.waits_since + l.stuck) < now() AND l.state = ANY ($2::text[]) AND ($3 = '' OR l.step = $3)
      --guard:a-list-of-stuck-sagas-leaves-nothing-out true
      AND NOT EXISTS (SELECT FROM mark m WHERE (l.waits_hour, l.name, l.key) > (m.waits_hour, m.name, m.key))
    ORDER BY l.waits_hour, l.name, l.key
    LIMIT $8
)
SELECT m.waits_hour, m.name, m.key, s.name, s.key, s.version, s.state, true, s.step, s.revision, s.started_at, s.waits_since, s.deadline, s.ended_at, s.waits_hour
FROM (VALUES (1)) AS one (row)
LEFT JOIN mark m ON true
LEFT JOIN LATERAL (
    SELECT i.* FROM page p
    CROSS JOIN LATERAL (SELECT * FROM postroom.saga WHERE name = p.name AND key = p.key LIMIT 1) i
) s ON true
ORDER BY s.waits_hour, s.name, s.key
