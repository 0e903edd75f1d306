-- The marks of stream $1, the newest first.
--
-- Locks   none.
-- Index   relay_mark_pkey (id): marks are few.
-- Order   by id, descending.
-- Called  by Log.Marks.
SELECT id, streams -> $1
FROM postroom.relay_mark
WHERE streams ? $1
ORDER BY id DESC;
