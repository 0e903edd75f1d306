-- How far the handler is: webhooks that it owes, and that took effect.
--
-- $1 the handler
--
-- Locks   none.
-- Index   none; the tables are small.
-- Called  by readState.
SELECT (SELECT count(*) FROM postroom.held WHERE handler = $1 AND dead_at IS NULL) AS owed,
       (SELECT count(*) FROM movement)                                             AS applied;
