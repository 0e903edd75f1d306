-- Instances with key $4 of saga $1 (empty: all sagas) in the states $2 at step $3 (empty: any
-- step). If $5 is true, only stuck instances. The statement returns at most $7 instances, of sagas
-- with names after $6. The columns are those of list.sql, with NULLs for mark.
--
-- Locks   none.
-- Index   the primary key, once for each saga.
-- Order   by saga.
-- Called  by Store.List.
SELECT NULL::timestamptz, NULL, NULL, s.name, s.key, s.version, s.state, s.ended_at IS NULL AND coalesce(s.deadline + interval '5 minutes', s.waits_since + d.stuck) < now(), s.step,
       s.revision, s.started_at, s.waits_since, s.deadline, s.ended_at, s.started_at
FROM (SELECT name, stuck FROM postroom.saga_known WHERE ($1 = '' OR name = $1) AND name > $6) d
CROSS JOIN LATERAL (SELECT * FROM postroom.saga WHERE name = d.name AND key = $4 LIMIT 1) s
WHERE s.state = ANY ($2::text[]) AND ($3 = '' OR s.step = $3) AND (NOT $5 OR s.ended_at IS NULL AND coalesce(s.deadline + interval '5 minutes', s.waits_since + d.stuck) < now())
ORDER BY s.name
LIMIT $7
