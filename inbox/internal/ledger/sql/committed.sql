-- Return one row if the transaction with id $1 committed, and otherwise no row. A server that replaced
-- the one with that transaction may not have reached its id yet: then the transaction is not there.
--
-- Locks   none.
-- Index   none.
-- Called  by DB.WasCommitted, and by Handler.FailIn after ROLLBACK, in the same round trip.
SELECT
--guard:a-transaction-that-another-server-lost-is-no-error = pg_xact_status($1::text::xid8) = 'committed'
WHERE CASE WHEN $1::text::xid8 OPERATOR(pg_catalog.<) pg_snapshot_xmax(pg_current_snapshot()) THEN pg_xact_status($1::text::xid8) = 'committed' END;
