-- The sizes of Postroom's tables, and when each table was vacuumed and analyzed. The numbers of
-- rows are the server's estimates.
--
-- Locks   none.
-- Index   those of the catalog.
-- Order   by size, the largest first.
-- Called  by Inspector.Tables.
SELECT c.relname, pg_catalog.pg_table_size(c.oid), pg_catalog.pg_indexes_size(c.oid), greatest(c.reltuples, s.n_live_tup, 0)::bigint, coalesce(s.n_dead_tup, 0),
       greatest(s.last_autovacuum, s.last_vacuum), greatest(s.last_autoanalyze, s.last_analyze)
FROM pg_class c
LEFT JOIN pg_stat_all_tables s ON s.relid = c.oid
WHERE c.relnamespace = 'postroom'::regnamespace::oid AND c.relkind = 'r'
ORDER BY pg_catalog.pg_total_relation_size(c.oid) DESC, c.relname;
