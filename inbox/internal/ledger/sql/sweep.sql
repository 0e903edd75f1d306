-- Take the next turn to remove old rows of inbox. No row means that another process has the turn,
-- or that no turn is due. The statement also returns the number of pages of the table, so that the
-- step knows where to end.
--
-- Locks   the row of sweep, until the transaction ends.
-- Index   none; one row.
-- Called  by Upkeep.Sweep, in the transaction of its step.
SELECT next_page, pg_relation_size('postroom.inbox') / current_setting('block_size')::int
FROM postroom.sweep
WHERE due_at <= now()
FOR UPDATE SKIP LOCKED;
