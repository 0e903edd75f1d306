-- Return one row if the transaction with id $1 committed, and otherwise no row.
--
-- Locks   none.
-- Index   none.
-- Called  by DB.WasCommitted, and by Handler.FailIn after ROLLBACK, in the same round trip.
SELECT WHERE pg_xact_status($1::text::xid8) = 'committed';
