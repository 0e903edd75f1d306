-- The ids of at most $12 dead events that match the filter $1 to $11, the first to die first.
-- If $12 is NULL, all.
--
-- Locks   none.
-- Index   as list.sql.
-- Called  by Reader.IDs.
SELECT id FROM postroom.dead_letters($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
ORDER BY dead_at, id
LIMIT $12;
