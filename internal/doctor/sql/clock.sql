-- The database's clock, and the current role of the session, which SET ROLE may have changed.
--
-- Locks   none.
-- Index   none.
-- Called  by examination.databaseClock.
SELECT clock_timestamp(), current_user::text;
