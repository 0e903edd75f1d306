-- How many effects there are, of how many events, and how many events are held.
--
-- Locks   none.
-- Called  by backlog.verify.
SELECT count(*), count(DISTINCT order_key), (SELECT count(*) FROM postroom.held)
FROM postroom.effects;
