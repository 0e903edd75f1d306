-- Return the changes of this transaction so far: the number of changed rows of each table, and the
-- number of events that it wrote, by type. The numbers for tables may also include changes of
-- earlier transactions of this connection, if the server has not yet added these changes to its
-- statistics. So the caller compares a result from before the handler's run with one from after it.
--
-- Locks   none.
-- Index   outbox_xid_seq (xid, seq).
-- Called  by Handler.changes.
SELECT 'table' AS kind, pg_catalog.format('%I.%I', schemaname, relname) AS name, n_tup_ins AS inserted, n_tup_upd AS updated, n_tup_del AS deleted
FROM pg_stat_xact_user_tables
WHERE n_tup_ins + n_tup_upd + n_tup_del > 0 AND relid <> 'postroom.outbox'::regclass::oid
UNION ALL
SELECT 'event', type, count(*), 0, 0
FROM postroom.outbox
WHERE xid = pg_current_xact_id_if_assigned()
GROUP BY type
ORDER BY 1, 2;
