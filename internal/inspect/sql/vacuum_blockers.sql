-- The transactions, prepared transactions, standbys and replication slots that keep vacuum from
-- freeing dead rows, in all databases of the cluster, the oldest first. A role without pg_monitor
-- sees only its own transactions; see sees_all_sessions.sql.
--
-- Locks   none.
-- Index   none; views of the server.
-- Called  by Inspector.Tables.
SELECT kind, name, coalesce(database, ''), coalesce(owner, ''), coalesce(application, ''), coalesce(state, ''),
       coalesce(greatest(extract(epoch FROM clock_timestamp() - since), 0), 0)::float8 AS age, coalesce(xids, 0)::bigint AS xids,
       coalesce(client, '') AS client
FROM (
    SELECT CASE WHEN backend_type = 'walsender' THEN 'standby' ELSE 'transaction' END AS kind, pid::text AS name, datname AS database,
           usename AS owner, application_name AS application, state, xact_start AS since, age(coalesce(backend_xmin, backend_xid)) AS xids,
           host(client_addr) AS client
    FROM pg_stat_activity
    WHERE pid <> pg_backend_pid() AND pg_catalog.num_nonnulls(backend_xmin, backend_xid) > 0 AND backend_type <> 'autovacuum worker'
    UNION ALL
    SELECT 'prepared', gid, database, owner, NULL, 'prepared', prepared, age(transaction), NULL
    FROM pg_prepared_xacts
    UNION ALL
    SELECT 'slot', slot_name, database, NULL, plugin, CASE WHEN active THEN 'active' ELSE 'inactive' END, NULL,
           greatest(age(xmin), age(catalog_xmin)), NULL
    FROM pg_replication_slots
    WHERE pg_catalog.num_nonnulls(xmin, catalog_xmin) > 0
) h
ORDER BY xids DESC, age DESC
LIMIT 10;
