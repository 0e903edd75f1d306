-- The order whose story is told: of those that were short of stock the one that took longest, or
-- else any that took longest.
--
-- Locks   none.
-- Index   none; it reads everything.
-- Called  by deployment.judge, in the auditor's database.
SELECT id
FROM placed
ORDER BY reason = 'out of stock' DESC, ended_at - placed_at DESC NULLS LAST
LIMIT 1;
