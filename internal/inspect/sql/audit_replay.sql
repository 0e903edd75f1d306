-- The actions of operators on replay $1, the newest first. $2 to $7 are $1 to $6 of audit.sql.
--
-- Locks   none.
-- Index   audit_replay (replay): as many entries as actions on the replay.
-- Order   by id, descending.
-- Called  by Inspector.Audit.
SELECT id, at, role, actor, action, reason, events, coalesce(handler, ''), coalesce(source, ''), coalesce(event_id, ''), coalesce(replay, 0), details,
       true AS wanted, false AS last
FROM (SELECT * FROM postroom.audit WHERE replay = $1::bigint OFFSET 0) a
WHERE ($2::text = '' OR actor = $2) AND ($3::text = '' OR action = $3) AND ($4::text = '' OR handler = $4 OR details->'handlers' OPERATOR(pg_catalog.?) $4)
  AND ($5::timestamptz IS NULL OR at >= $5) AND id < $6::bigint
ORDER BY id DESC
LIMIT $7::int;
