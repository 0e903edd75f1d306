-- Create a replay.
--
-- $1 actor   $2 reason   $3 the filter, as JSON   $4 attempts of each event   $5 rate; NULL is no
-- limit   $6 canary   $7 the share of failures above which the replay stops   $8 whether outgoing
-- events get the time of their release as log time
--
-- Locks   the new row.
-- Index   none.
-- Called  by Store.CreateReplay.
INSERT INTO postroom.replay (actor, reason, filter, attempts, rate, canary, stop_at, as_new, phase, items)
VALUES ($1, $2, $3::jsonb, $4, $5, $6, $7, $8, CASE WHEN $6::int > 0 THEN 'canary' ELSE 'rest' END, 0)
RETURNING id;
