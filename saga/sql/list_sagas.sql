-- How many sagas there are.
--
-- Locks   none.
-- Index   the primary key.
-- Called  by Store.List.
SELECT pg_catalog.count(*) FROM postroom.saga_known
