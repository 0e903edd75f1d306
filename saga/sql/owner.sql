-- The identity of this Postroom. Each schema with Postroom's tables has its own identity.
--
-- Locks   none.
-- Index   none: there is one row.
-- Called  by table.owner.
SELECT id FROM postroom.instance
