-- The order that the report describes: the order that took longest of those that were short of
-- stock. If no order was short of stock, the order that took longest of all.
--
-- Locks   none.
-- Index   none; it reads everything.
-- Called  by deployment.judge, in the auditor's database.
SELECT id
FROM placed
ORDER BY reason = 'out of stock' DESC, ended_at - placed_at DESC NULLS LAST
LIMIT 1;
