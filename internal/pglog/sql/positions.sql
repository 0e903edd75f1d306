-- The positions of the streams, as they were recorded last.
--
-- Locks   none.
-- Index   none; one row.
-- Called  by Log.Positions.
SELECT streams FROM postroom.relay;
