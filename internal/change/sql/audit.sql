-- Record an action of an operator, in the transaction of the action.
--
-- $1 actor   $2 action   $3 reason   $4 how many events the action changed   $5 handler, $6 source
-- and $7 id of the event, if the action is on one event   $8 replay   $9 filter and options, as JSON
--
-- Locks   the new row.
-- Index   none.
-- Called  by Tables.Audit.
INSERT INTO postroom.audit (actor, action, reason, events, handler, source, event_id, job, details)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9::jsonb)
RETURNING id;
