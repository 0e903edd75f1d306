-- The type of the event of handler $1 that has been due for the longest time and that no process has
-- claimed.
--
-- Locks   none.
-- Index   held_due (handler, next_at, pos): the claimed events that are due, and one more.
-- Called  by Status.readOverdueTypes.
SELECT postroom.clipped(type, 255)
FROM postroom.held
WHERE handler = $1::text AND next_at <= now() AND claimed_by IS NULL
ORDER BY next_at, pos
LIMIT 1;
