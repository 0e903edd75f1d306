-- The actions of operators, the newest first.
--
-- $1 actor   $2 action   $3 handler; each selects all if it is empty
-- $4 the earliest time; NULL selects all   $5 only ids below this id   $6 the maximum number of rows
--
-- An action on events of several handlers has them in its details.
--
-- The statement reads at most 10,000 rows. It returns row 10,000 even if this row does not match,
-- because the next page begins after this row.
--
-- Locks   none.
-- Index   audit_pkey (id).
-- Order   by id, descending.
-- Called  by Inspector.Audit.
SELECT id, at, role, actor, action, reason, events, coalesce(handler, ''), coalesce(source, ''), coalesce(event_id, ''), coalesce(replay, 0), details,
       --guard:an-action-without-a-handler-does-not-match 1 = wanted
       coalesce(wanted, false) AS wanted, n = 10000 AS last
FROM (
    SELECT *, row_number() OVER (ORDER BY id DESC) AS n,
           ($1::text = '' OR actor = $1) AND ($2::text = '' OR action = $2) AND ($3::text = '' OR handler = $3 OR details->'handlers' OPERATOR(pg_catalog.?) $3)
               AND ($4::timestamptz IS NULL OR at >= $4) AS wanted
    FROM (SELECT * FROM postroom.audit WHERE id < $5::bigint ORDER BY id DESC LIMIT 10000) a
) a
WHERE wanted OR n = 10000
ORDER BY id DESC
LIMIT $6::int;
