-- Let the transaction neither wait long for the lock on node, nor hold it for long if its
-- process stalls: signs of life wait behind it.
--
-- Locks   none.
-- Index   none.
-- Called  by Upkeep.Sweep, before lock_nodes.sql.
SELECT set_config('lock_timeout', '1s', true), set_config('statement_timeout', '10s', true),
       set_config('idle_in_transaction_session_timeout', '2s', true);
