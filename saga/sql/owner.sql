-- The identity of this Postroom.
--
-- Locks   none.
-- Index   none: there is one row.
-- Called  by table.owner.
SELECT id FROM postroom.instance
