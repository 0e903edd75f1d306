-- Record that the next step begins at page $1 of inbox and is due $2 from now.
--
-- Locks   the row of sweep.
-- Index   none; one row.
-- Called  by Upkeep.Sweep, in the transaction that removed the rows.
UPDATE postroom.sweep
SET next_page = $1, due_at = now() + $2::interval;
