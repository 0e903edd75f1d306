-- Which tables these are: the identity of the Postroom database, and the name of the database. A
-- copy of a database has the same identity, and on one server another name.
--
-- Locks   none.
-- Index   none, there is one row.
-- Called  by Endpoints.tablesOf.
SELECT id::text, pg_catalog.current_database()::text FROM postroom.instance;
