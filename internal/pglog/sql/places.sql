-- Where streams ended when that was last recorded.
--
-- Locks   none.
-- Index   none; one row.
-- Called  by Log.Places.
SELECT streams FROM postroom.relay;
