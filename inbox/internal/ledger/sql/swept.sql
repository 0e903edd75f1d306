-- Record that old rows were removed up to page $1 of inbox, that the next step is due in $2,
-- and that rows from before $3 were removed (NULL: no row was removed).
--
-- Locks   the row of sweep.
-- Index   none; one row.
-- Called  by Upkeep.Sweep, in the transaction that removed the rows.
UPDATE postroom.sweep
SET next_page = $1, due_at = now() + $2::interval, expired_before = greatest(expired_before, $3::timestamptz);
