-- Whether the transaction with id $1 still runs on this connection, and if not, whether it
-- was committed.
--
-- Locks   none.
-- Index   none.
-- Called  by ended.
SELECT coalesce(pg_current_xact_id_if_assigned() = $1::text::xid8, false) AS runs,
       coalesce(pg_xact_status($1::text::xid8) = 'committed', false) AS committed;
