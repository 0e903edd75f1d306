-- Note that the ledger is swept up to page $1, and that the next step is due in $2. If
-- the step removed rows ($4), note as well from which time on all rows are there: those
-- that were decided within the last $3.
--
-- Locks   the row of sweep.
-- Index   none; one row.
-- Called  by Upkeep.Sweep, in the transaction that removed the rows.
UPDATE postroom.sweep
SET next_page = $1, next_at = now() + $2::interval,
    expired_before = CASE WHEN $4 THEN greatest(expired_before, now() - $3::interval) ELSE expired_before END;
