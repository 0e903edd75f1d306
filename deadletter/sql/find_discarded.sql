-- The ids of at most $12 discarded events that match the filter $1 to $11. The event that was
-- discarded first comes first. If $12 is NULL: the ids of all these events.
--
-- Locks   none.
-- Index   those of list_discarded.sql.
-- Called  by reader.ids.
SELECT id FROM postroom.discarded($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
ORDER BY discarded_at, id
LIMIT $12;
