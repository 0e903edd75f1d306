-- How many effects there are, of how many events, how many events are held, and how
-- many calls are done.
--
-- Locks   none.
-- Called  by backlog.verify.
SELECT count(*), count(DISTINCT order_key), (SELECT count(*) FROM postroom.held),
    (SELECT count(*) FROM postroom.receipt WHERE done_at IS NOT NULL)
FROM postroom.effects;
