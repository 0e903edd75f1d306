-- Limit how long the transaction waits for the lock on node, and how long it has the lock if its
-- process stalls. The processes' signs of life (node.sql) wait for that lock.
--
-- Locks   none.
-- Index   none.
-- Called  by Upkeep.Sweep, before lock_nodes.sql.
SELECT set_config('lock_timeout', '1s', true), set_config('statement_timeout', '10s', true),
       --guard:a-stalled-sweep-ends 2 = '0'
       set_config('idle_in_transaction_session_timeout', '2s', true);
