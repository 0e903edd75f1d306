-- Return the id of this Postroom database.
--
-- Locks   none.
-- Index   none, there is one row.
-- Called  by Upkeep.Instance.
SELECT id::text FROM postroom.instance;
