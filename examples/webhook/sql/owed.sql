-- How many webhooks the handler still has to handle.
--
-- $1 the handler
--
-- Locks   none.
-- Index   none; the tables are small.
-- Called  by deployment.settle.
SELECT count(*) FROM postroom.held WHERE handler = $1 AND dead_at IS NULL;
