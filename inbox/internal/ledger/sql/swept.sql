-- Note that the ledger is swept up to page $1, and that the next step is due in $2.
--
-- Locks   the row of sweep.
-- Index   none; one row.
-- Called  by Upkeep.Sweep.
UPDATE postroom.sweep SET next_page = $1, next_at = now() + $2::interval;
