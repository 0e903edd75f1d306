-- Set the timeouts of a transaction and return its id, as decide.sql does.
--
-- Locks   none.
-- Index   none.
-- Called  by Handler.Begin and Handler.BeginAlong, with the BEGIN before it and in the same round trip.
SELECT pg_current_xact_id()::text
WHERE set_config('lock_timeout', '5s', true) <> set_config('idle_in_transaction_session_timeout', $1::text, true);
