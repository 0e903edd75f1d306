-- Which migrations were applied, and when, in microseconds since 1970: pgx cannot read the text of a time if the
-- database has another DateStyle.
--
-- Locks   none.
-- Index   migration's primary key.
-- Called  by Require, Status and Migrate.
SELECT version, serves_from, (extract(epoch FROM applied_at) * 1000000::numeric)::bigint
FROM postroom.migration
ORDER BY version;
