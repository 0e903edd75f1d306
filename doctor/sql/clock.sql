-- The database's clock.
--
-- Locks   none.
-- Index   none.
-- Called  by examination.measureClock.
SELECT clock_timestamp();
