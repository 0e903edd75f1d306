-- Counts what handlers and operators have still to do.
--
-- $1: what the fate of an event says that is to stay dead
-- $2: how many pairs of an event and a handler there are
--
-- Locks: none. Reads everything. Called by: drained.
SELECT (SELECT count(*) FROM postroom.held WHERE dead_at IS NULL) AS "held events",
       (SELECT count(*) FROM postroom.job WHERE state = 'running') AS "replays that run",
       (SELECT count(*) FROM postroom.held, LATERAL (SELECT convert_from(data, 'UTF8')::jsonb AS body) AS read
         WHERE dead_at IS NOT NULL AND NOT coalesce(body->>'poison' = handler AND body->>'fate' = $1, false)
       ) AS "dead events that an operator has to look after",
       $2::bigint - (SELECT count(*) FROM (
           SELECT handler, event FROM effect UNION
           SELECT handler, event_id FROM postroom.held WHERE dead_at IS NOT NULL UNION
           SELECT handler, event_id FROM postroom.archive) AS decided) AS "events that are undecided somewhere";
