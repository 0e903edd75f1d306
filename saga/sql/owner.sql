-- The identity of this Postroom.
--
-- Locks   none.
-- Index   none: there is one row.
-- Called  by table.identify.
SELECT id FROM postroom.instance
