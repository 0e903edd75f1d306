-- Take the turn at sweeping the ledger. No row: it is another process's, or
-- nothing is due. The table's pages are told so that the next step knows its end.
--
-- Locks   the row of sweep, until the transaction ends.
-- Index   none; one row.
-- Called  by Upkeep.Sweep, in the transaction of its step.
SELECT next_page, pg_relation_size('postroom.inbox') / current_setting('block_size')::int
FROM postroom.sweep
WHERE next_at <= now()
FOR UPDATE SKIP LOCKED;
