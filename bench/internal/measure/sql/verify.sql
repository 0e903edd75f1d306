-- How many effects there are, how many events have an effect, how many events are held, and
-- how many calls are done.
--
-- Locks   none.
-- Called  by backlog.verify.
SELECT count(*), count(DISTINCT order_key), (SELECT count(*) FROM postroom.held),
    (SELECT count(*) FROM postroom.receipt WHERE done_at IS NOT NULL)
FROM postroom.effects;
