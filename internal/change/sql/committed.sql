-- Return whether the transaction with id $1 committed.
--
-- Locks   none.
-- Index   none.
-- Called  by Tables.committed, after a COMMIT that was not answered.
SELECT coalesce(pg_xact_status($1::text::xid8) = 'committed', false);
