-- Take the next turn to remove old rows of inbox. No row means that another process has the turn,
-- or that no turn is due. A turn that is due later than a turn can be is due now: the clock was wrong
-- when it was written. The statement also returns the number of pages of inbox. From this number
-- the caller computes how many pages the step reads, and whether it is the last step of a sweep.
--
-- Locks   the row of sweep, until the transaction ends.
-- Index   none; one row.
-- Called  by Upkeep.Sweep, in the transaction of its step.
SELECT next_page, pg_catalog.pg_relation_size('postroom.inbox') / current_setting('block_size')::int
FROM postroom.sweep
--guard:a-turn-cannot-be-due-later-than-it-can 2 false
WHERE due_at <= now() OR due_at > now() + interval '2 hours'
FOR UPDATE SKIP LOCKED;
