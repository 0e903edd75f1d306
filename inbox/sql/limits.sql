-- Set the timeouts of a transaction, as decide.sql does for others.
--
-- Locks   none.
-- Index   none.
-- Called  by consumer.beginRerun and consumer.settleCall, with the BEGIN before it and in the same round trip.
SELECT set_config('lock_timeout', '5s', true), set_config('idle_in_transaction_session_timeout', $1::text, true);
