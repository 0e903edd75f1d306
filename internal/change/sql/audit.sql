-- Record an action of an operator, in the transaction of the action.
--
-- $1 actor   $2 action   $3 reason   $4 how many events the action changed   $5 handler, if all have
-- the same   $6 source and $7 id of the event, if the action is on one event   $8 replay   $9 filter
-- and options, as JSON   $10 the handlers, if there are several: the details get them
--
-- Locks   the new row.
-- Index   none.
-- Called  by Tables.Audit.
INSERT INTO postroom.audit (actor, action, reason, events, handler, source, event_id, replay, details)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8,
        CASE WHEN $10::text[] IS NULL THEN $9::jsonb ELSE coalesce($9::jsonb, '{}'::jsonb) || pg_catalog.jsonb_build_object('handlers', $10::text[]) END)
RETURNING id;
