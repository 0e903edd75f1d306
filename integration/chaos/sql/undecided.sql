-- Counts held events that are not dead, replays that run, and dead events for which an operator
-- still has to act.
--
-- $1: the value of the field fate in the data of events that have to stay dead
--
-- Locks: none. Reads everything. Called by: drained.
SELECT (SELECT count(*) FROM postroom.held WHERE dead_at IS NULL) AS "held events",
       (SELECT count(*) FROM postroom.replay WHERE state = 'running') AS "replays that run",
       (SELECT count(*) FROM postroom.held, LATERAL (SELECT convert_from(data, 'UTF8')::jsonb AS body) AS read
         WHERE dead_at IS NOT NULL AND NOT coalesce(body->>'poison' = handler AND body->>'fate' = $1, false)
       ) AS "dead events that an operator has to look after";
