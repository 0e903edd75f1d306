-- Take the next turn to remove old rows of inbox. No row means that another process has the turn,
-- or that no turn is due. The statement also returns the number of pages of inbox. From this number
-- the caller computes how many pages the step reads, and whether it is the last step of a sweep.
--
-- Locks   the row of sweep, until the transaction ends.
-- Index   none; one row.
-- Called  by Upkeep.Sweep, in the transaction of its step.
SELECT next_page, pg_catalog.pg_relation_size('postroom.inbox') / current_setting('block_size')::int
FROM postroom.sweep
WHERE due_at <= now()
FOR UPDATE SKIP LOCKED;
