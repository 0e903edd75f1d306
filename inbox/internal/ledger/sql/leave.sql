-- Process $1 ends.
--
-- Locks   its row.
-- Index   the primary key.
-- Called  by Upkeep.Leave.
DELETE FROM postroom.node WHERE id = $1;
