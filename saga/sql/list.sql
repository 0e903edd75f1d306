-- Instances of saga $1, or of all if it is empty, in the states $3; with key $2 and at step $4,
-- unless these are empty; with $5 only those that are stuck. They begin after the instance of saga
-- $7 with key $8 that began at $6, or with the newest; $9 at most.
--
-- Locks   none.
-- Index   saga_listed (name, state, started_at, key), for each saga and state; with $5
--         saga_waiting (name, waits_hour); with $2 the primary key.
-- Order   the newest first, then by saga and key, backwards.
-- Called  by Store.List.
SELECT s.name, s.key, s.version, s.state, s.ended_at IS NULL AND s.waits_since < now() - d.stuck, s.step, s.revision,
       s.started_at, s.waits_since, s.deadline, s.ended_at
FROM (
    SELECT name, max(stuck) AS stuck FROM postroom.saga_definition WHERE $1 = '' OR name = $1 GROUP BY name
) d
CROSS JOIN unnest($3::text[]) AS want (state)
CROSS JOIN LATERAL (
    SELECT *
    FROM (
        SELECT * FROM postroom.saga i
        WHERE NOT $5 AND $2 = '' AND i.name = d.name AND i.state = want.state AND ($4 = '' OR i.step = $4)
          AND ($6::timestamptz IS NULL OR i.started_at <= $6)
          AND ($6::timestamptz IS NULL OR (i.started_at, i.name, i.key) < ($6, $7, $8))
        ORDER BY i.started_at DESC, i.key DESC
        LIMIT $9
    ) listed
    UNION ALL
    SELECT * FROM postroom.saga i
    WHERE NOT $5 AND $2 <> '' AND i.name = d.name AND i.key = $2 AND i.state = want.state AND ($4 = '' OR i.step = $4)
      AND ($6::timestamptz IS NULL OR (i.started_at, i.name, i.key) < ($6, $7, $8))
    UNION ALL
    SELECT * FROM postroom.saga i
    WHERE $5 AND i.name = d.name AND i.ended_at IS NULL AND i.waits_hour <= now() - d.stuck AND i.waits_since < now() - d.stuck
      AND i.state = want.state AND ($2 = '' OR i.key = $2) AND ($4 = '' OR i.step = $4)
      AND ($6::timestamptz IS NULL OR (i.started_at, i.name, i.key) < ($6, $7, $8))
) s
ORDER BY s.started_at DESC, s.name DESC, s.key DESC
LIMIT $9
