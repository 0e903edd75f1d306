-- Whether the table named $1 exists, and which transactions have a lock of it.
--
-- Locks   none.
-- Index   none; system views.
-- Called  by Migrator.Migrate, before it asks for a lock of the table. If a transaction
--         still has its lock after the wait, this transaction blocked the migration during
--         the complete wait. Virtual ids, unlike pids, distinguish the transactions of a session.
SELECT to_regclass($1) IS NOT NULL AS found,
       ARRAY(
           SELECT DISTINCT virtualtransaction
           FROM pg_locks
           WHERE granted AND pid IS DISTINCT FROM pg_backend_pid()
             AND locktype = 'relation' AND relation = to_regclass($1)::oid
             AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
       ) AS holders;
