-- Instances of saga $1 (empty: all sagas) in the states $2 at step $3 (empty: any step). In the
-- order of the list, they come after the instance of saga $5 with key $6 that began at $4. The
-- statement reads $7 instances of each saga and state, and returns at most $8.
--
-- mark is the place at which the statement stopped reading. If it stopped in several sagas and
-- states, mark is the first of these places. The next page has the instances behind mark. The
-- statement always returns a row, with NULLs if there is no mark or no instance. The last column is
-- the time by which the list is sorted.
--
-- Locks   none.
-- Index   saga_listed (name, state, started_at, key), for each saga and state; the primary key.
-- Order   the newest first, then by saga and key, in descending order.
-- Called  by Store.List.
WITH looked AS MATERIALIZED (
    SELECT d.name, i.key, i.started_at, i.step, i.place
    FROM (SELECT name FROM postroom.saga_known WHERE $1 = '' OR name = $1) d
    CROSS JOIN pg_catalog.unnest($2::text[]) AS want (state)
    CROSS JOIN LATERAL (
        SELECT s.*, row_number() OVER () AS place
        FROM (
            SELECT key, started_at, step FROM postroom.saga
            WHERE name = d.name AND state = want.state AND started_at <= $4 AND (started_at, name, key) < ($4, $5, $6)
            ORDER BY started_at DESC, key DESC
            LIMIT $7
        ) s
    ) i
), mark AS (
    SELECT started_at, name, key FROM looked WHERE place = $7 ORDER BY started_at DESC, name DESC, key DESC LIMIT 1
), page AS (
    SELECT l.name, l.key FROM looked l
    WHERE ($3 = '' OR l.step = $3)
      --guard:a-list-of-sagas-leaves-nothing-out true
      AND NOT EXISTS (SELECT FROM mark m WHERE (l.started_at, l.name, l.key) < (m.started_at, m.name, m.key))
    ORDER BY l.started_at DESC, l.name DESC, l.key DESC
    LIMIT $8
)
SELECT m.started_at, m.name, m.key, s.*
FROM (VALUES (1)) AS one (row)
LEFT JOIN mark m ON true
LEFT JOIN LATERAL (
    SELECT i.name, i.key, i.version, i.state, i.ended_at IS NULL AND coalesce(i.deadline + interval '5 minutes', i.waits_since + d.stuck) < now(), i.step, i.revision,
           i.started_at, i.waits_since, i.deadline, i.ended_at, i.started_at AS sorted_at
    FROM page p
    CROSS JOIN LATERAL (SELECT * FROM postroom.saga WHERE name = p.name AND key = p.key LIMIT 1) i
    JOIN postroom.saga_known d ON d.name = p.name
) s ON true
ORDER BY s.started_at DESC, s.name DESC, s.key DESC
