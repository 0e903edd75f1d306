-- The digest of the input of instance $2 of saga $1.
--
-- Locks   none.
-- Index   the primary key.
-- Called  by table.input.
SELECT input FROM postroom.saga WHERE name = $1 AND key = $2
