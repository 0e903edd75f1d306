-- The version of the locale by which this database sorts text, as it was when the
-- database was made and as the server has it now; empty where the locale has none, as
-- C has not. PostgreSQL 15 was the first to keep it.
--
-- Locks   none.
-- Index   pg_database_datname_index.
-- Called  by checkCollation.
SELECT coalesce(datcollversion, '') AS recorded, coalesce(pg_database_collation_actual_version(oid), '') AS present, datname
FROM pg_database
WHERE datname = current_database();
