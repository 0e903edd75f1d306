-- Return the id of the transaction.
--
-- Locks   none.
-- Index   none.
-- Called  by DB.known, after BEGIN, in the same round trip.
SELECT pg_current_xact_id()::text;
