-- Begin the transaction of one delivery. A handler that waits for a lock, or
-- forgets its transaction, gives its connection back before long.
--
-- Locks   none.
-- Index   none.
-- Called  by consumer.apply.
BEGIN;
SET LOCAL lock_timeout = '5s';
SET LOCAL idle_in_transaction_session_timeout = '60s';
