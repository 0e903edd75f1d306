-- The sessions and prepared transactions that a migration may be waiting for: those that lock a
-- table of this schema, or have the migration lock. $1 are virtual ids of transactions: those that
-- had locked the table for which the migration waited, before the wait began. The statement returns
-- only these transactions. If they are not known, $1 is NULL. Then the statement returns all
-- transactions except those that began just now.
--
-- The server does not read all views at the same moment. If a session, its transaction or a
-- prepared transaction ended after its lock was read, the statement leaves it out. Only members of
-- pg_read_all_stats see what sessions of other roles do. If the caller is not a member, the
-- statement returns those sessions without details. A session with track_activities off also comes
-- without details.
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
       coalesce(pg_catalog.array_agg(DISTINCT c.relname::text) FILTER (WHERE c.relname IS NOT NULL), '{}') AS tables
FROM pg_locks l
LEFT JOIN pg_stat_activity a ON a.pid = l.pid
LEFT JOIN pg_locks x ON l.pid IS NULL AND x.pid IS NULL AND x.locktype = 'transactionid' AND x.virtualtransaction = l.virtualtransaction
LEFT JOIN pg_prepared_xacts p ON p.transaction = x.transactionid
LEFT JOIN pg_class c ON l.locktype = 'relation' AND c.oid = l.relation
     AND c.relnamespace = to_regnamespace('postroom')::oid AND c.relkind IN ('r', 'p', 'v', 'm')
WHERE l.granted AND l.pid IS DISTINCT FROM pg_backend_pid()
  AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND (c.oid IS NOT NULL
       OR l.locktype = 'advisory' AND l.objsubid = 1
          AND (l.classid::bigint << 32 | l.objid::bigint) = hashtextextended('postroom.migrate', 0::bigint))
  --guard:who-ended-just-now-is-not-in-the-way true
  --guard:sessions-of-which-little-is-told-are-named 3 false
  --guard:prepared-transactions-are-in-the-way 1 false
  AND (p.gid IS NOT NULL OR a.xact_start IS NOT NULL OR a.pid IS NOT NULL AND coalesce(a.state, 'disabled') = 'disabled')
  --guard:only-who-was-there-before-is-in-the-way 1 = l.virtualtransaction IS NOT NULL AND $1::text[] IS NOT NULL
  AND (l.virtualtransaction = ANY ($1::text[])
       OR $1::text[] IS NULL AND coalesce(a.xact_start, p.prepared, '-infinity') < clock_timestamp() - interval '100 ms')
GROUP BY l.pid, l.virtualtransaction
ORDER BY age DESC, pid;
