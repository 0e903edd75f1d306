-- A row if the transaction with id $1 was committed.
--
-- Locks   none.
-- Index   none.
-- Called  by DB.WasCommitted, and by Handler.FailIn behind ROLLBACK and in the same round trip.
SELECT WHERE pg_xact_status($1::text::xid8) = 'committed';
