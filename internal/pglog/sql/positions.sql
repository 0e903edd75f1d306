-- The recorded position of each stream: the last message that the broker acknowledged.
--
-- Locks   none.
-- Index   none; one row.
-- Called  by Log.Positions.
SELECT streams FROM postroom.relay;
