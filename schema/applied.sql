-- Which migrations were applied.
--
-- Locks   none.
-- Index   migration's primary key.
-- Called  by Require, Status and Migrate.
SELECT version, serves_from, applied_at
FROM postroom.migration
ORDER BY version;
