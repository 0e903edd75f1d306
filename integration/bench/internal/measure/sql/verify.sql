-- Count the effects, the events that have an effect, the events that are held, and the calls that
-- are done.
--
-- Locks   none.
-- Called  by backlog.verify.
SELECT count(*), count(DISTINCT order_key), (SELECT count(*) FROM postroom.held),
    (SELECT count(*) FROM postroom.receipt WHERE done_at IS NOT NULL)
FROM postroom.effects;
