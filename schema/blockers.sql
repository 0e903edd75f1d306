-- Who may be what a migration waits for: sessions and prepared transactions that hold a
-- lock on a table of this schema, or the migration lock, and began longer ago than $1.
-- What a session of another role does is told to members of pg_read_all_stats; of others
-- only that it is there.
--
-- Locks   none.
-- Index   none; system views.
-- Called  by Migrator.Migrate, after it gave up waiting for a lock.
SELECT coalesce(l.pid, 0) AS pid,
       coalesce(min(a.application_name), '') AS application,
       coalesce(min(coalesce(a.usename, p.owner)::text), '') AS role,
       CASE WHEN l.pid IS NULL THEN 'prepared transaction ' || coalesce(min(p.gid), '') ELSE coalesce(min(a.state), '') END AS state,
       coalesce(extract(epoch FROM clock_timestamp() - min(coalesce(a.xact_start, p.prepared))), 0)::float8 AS age,
       coalesce(extract(epoch FROM clock_timestamp() - min(a.query_start)), 0)::float8 AS query_age,
       coalesce(array_agg(DISTINCT c.relname::text) FILTER (WHERE c.relname IS NOT NULL), '{}') AS tables
FROM pg_locks l
LEFT JOIN pg_stat_activity a ON a.pid = l.pid
LEFT JOIN pg_locks x ON l.pid IS NULL AND x.pid IS NULL AND x.locktype = 'transactionid' AND x.virtualtransaction = l.virtualtransaction
LEFT JOIN pg_prepared_xacts p ON p.transaction = x.transactionid
LEFT JOIN pg_class c ON l.locktype = 'relation' AND c.oid = l.relation
     AND c.relnamespace = to_regnamespace('postroom') AND c.relkind IN ('r', 'p', 'v', 'm')
WHERE l.granted AND l.pid IS DISTINCT FROM pg_backend_pid()
  AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND (c.oid IS NOT NULL
       OR l.locktype = 'advisory' AND l.objsubid = 1
          AND (l.classid::bigint << 32 | l.objid::bigint) = hashtextextended('postroom.migrate', 0))
  AND coalesce(a.xact_start, p.prepared, '-infinity') < clock_timestamp() - $1::interval
GROUP BY l.pid, l.virtualtransaction
ORDER BY age DESC, pid;
