-- Tables for which autovacuum is turned off.
--
-- Locks   none.
-- Index   pg_class's by name.
-- Order   by name.
-- Called  by checkAutovacuum.
SELECT c.relname::text
FROM pg_class c, pg_catalog.unnest(c.reloptions) AS option
WHERE c.relnamespace = 'postroom'::regnamespace::oid AND c.relkind = 'r'
  AND split_part(option, '=', 1) = 'autovacuum_enabled' AND NOT split_part(option, '=', 2)::boolean
ORDER BY c.relname;
