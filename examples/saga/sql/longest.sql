-- The order that the report describes. Of the orders that were short of stock, it is the order that
-- took longest. If no order was short of stock, it is the order that took longest of all.
--
-- Locks   none.
-- Index   none; it reads everything.
-- Called  by deployment.ask, in the auditor's database.
SELECT id
FROM placed
ORDER BY reason = 'out of stock' DESC, ended_at - placed_at DESC NULLS LAST
LIMIT 1;
