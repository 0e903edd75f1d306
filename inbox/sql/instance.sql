-- Who this Postroom is.
--
-- Locks   none.
-- Index   none; one row.
-- Called  by consumer.ensure.
SELECT id::text
FROM postroom.instance;
