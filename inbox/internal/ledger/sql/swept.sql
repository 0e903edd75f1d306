-- Record that the next step begins at page $1 of inbox and is due $2 from now, and that this step
-- removed rows from before $3 (NULL: it removed no row).
--
-- Locks   the row of sweep.
-- Index   none; one row.
-- Called  by Upkeep.Sweep, in the transaction that removed the rows.
UPDATE postroom.sweep
SET next_page = $1, due_at = now() + $2::interval, expired_before = greatest(expired_before, $3::timestamptz);
