-- Count the events that are held.
--
-- Locks   none.
-- Called  by waitForHeld.
SELECT count(*) FROM postroom.held;
