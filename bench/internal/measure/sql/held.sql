-- How many events are held.
--
-- Locks   none.
-- Called  by bench.waitForHeld.
SELECT count(*) FROM postroom.held;
