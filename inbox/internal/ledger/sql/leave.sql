-- Remove the row of process $1, which ends.
--
-- Locks   its row.
-- Index   the primary key.
-- Called  by Upkeep.Leave.
DELETE FROM postroom.node WHERE id = $1;
