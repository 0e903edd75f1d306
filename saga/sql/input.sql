-- The digest of the input of instance $2 of saga $1, and the event that began it, or NULL.
--
-- Locks   none.
-- Index   the primary key.
-- Called  by table.input.
SELECT input, causation_id FROM postroom.saga WHERE name = $1 AND key = $2
