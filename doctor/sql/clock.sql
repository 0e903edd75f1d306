-- The database's clock.
--
-- Locks   none.
-- Index   none.
-- Called  by examination.databaseClock.
SELECT clock_timestamp();
