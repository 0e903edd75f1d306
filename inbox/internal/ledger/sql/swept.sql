-- Record that old rows were removed up to page $1 of inbox, and that the next step is due in
-- $2. If the step removed rows ($4), also record from which time on all rows exist: those
-- that were decided within the last $3.
--
-- Locks   the row of sweep.
-- Index   none; one row.
-- Called  by Upkeep.Sweep, in the transaction that removed the rows.
UPDATE postroom.sweep
SET next_page = $1, next_at = now() + $2::interval,
    expired_before = CASE WHEN $4 THEN greatest(expired_before, now() - $3::interval) ELSE expired_before END;
