-- The transactions that have been open, or prepared, for longer than $1: they keep vacuum from
-- freeing removed rows. Also the replication slots that no client reads, if they make the server
-- keep removed rows, or more than a gigabyte of its write-ahead log. If this role has no right to
-- see the sessions of other roles, the statement only counts these sessions.
--
-- Locks   none.
-- Index   none.
-- Called  by checkVacuum.
SELECT 'transaction' AS kind, pg_catalog.format('process %s of role %s%s', pid, usename, ' (' || nullif(application_name, '') || ')') AS name,
       extract(epoch FROM clock_timestamp() - xact_start)::float8 AS age, 0::bigint AS bytes, pid::text AS handle
FROM pg_stat_activity
WHERE datname = current_database() AND backend_type = 'client backend' AND xact_start < clock_timestamp() - $1::interval
  AND pid <> pg_backend_pid()
UNION ALL
SELECT 'prepared', pg_catalog.format('%L of role %s', gid, owner), extract(epoch FROM clock_timestamp() - prepared)::float8, 0, gid
FROM pg_prepared_xacts
WHERE database = current_database() AND prepared < clock_timestamp() - $1::interval
UNION ALL
SELECT 'slot', slot_name, 0, coalesce(pg_wal_lsn_diff(CASE WHEN NOT pg_is_in_recovery() THEN pg_current_wal_lsn() END, restart_lsn), 0)::bigint, slot_name
FROM pg_replication_slots
WHERE NOT active AND (xmin IS NOT NULL
    OR pg_wal_lsn_diff(CASE WHEN NOT pg_is_in_recovery() THEN pg_current_wal_lsn() END, restart_lsn) > 1073741824::numeric)
UNION ALL
SELECT 'hidden', '', 0, count(*), ''
FROM pg_stat_activity
WHERE datname = current_database() AND query = '<insufficient privilege>'
HAVING count(*) > 0;
