-- Let no process register until the transaction ends. A process that registered before is
-- in windows.sql; one that registers afterwards reads what this transaction removed.
--
-- Locks   node, against writes. A sign of life waits.
-- Index   none.
-- Called  by Upkeep.Sweep, before windows.sql.
LOCK TABLE postroom.node IN SHARE MODE;
