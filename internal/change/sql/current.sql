-- Return the id of the transaction, or NULL if it has changed nothing.
--
-- Locks   none.
-- Index   none.
-- Called  by Tables.InTx, as the last statement of its transaction.
SELECT pg_current_xact_id_if_assigned()::text;
