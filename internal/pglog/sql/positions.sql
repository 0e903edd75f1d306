-- The recorded positions of the streams.
--
-- Locks   none.
-- Index   none; one row.
-- Called  by Log.Positions.
SELECT streams FROM postroom.relay;
