-- Set the same timeouts as decide.sql, and return the id of the transaction.
--
-- Locks   none.
-- Index   none.
-- Called  by Handler.Beginning and Handler.BeginAlong, after BEGIN, in the same round trip.
SELECT pg_current_xact_id()::text
WHERE set_config('lock_timeout', '5s', true) || set_config('idle_in_transaction_session_timeout', $1::text, true) <> '';
