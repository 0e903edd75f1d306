-- Let no process register until the transaction ends. windows.sql reads the processes that
-- registered earlier. If a process registers later, node.sql tells it the time from which on inbox
-- has all rows.
--
-- Locks   node, against writes. A sign of life waits.
-- Index   none.
-- Called  by Upkeep.Sweep, before windows.sql.

--guard:no-process-registers-during-a-sweep do LOCK TABLE postroom.node IN ACCESS SHARE MODE
LOCK TABLE postroom.node IN SHARE MODE;
