-- The history of instance $2 of saga $1, with the commands that were written.
--
-- Locks   none.
-- Index   the primary key.
-- Order   as it happened.
-- Called  by Store.Show.
SELECT h.at, h.revision, e.step, e.direction, e.what, coalesce(e.type, ''), coalesce(e.event_id, '')
FROM postroom.saga_step h
CROSS JOIN LATERAL (
    SELECT 1 AS n, h.step, h.direction, h.what, h.type, h.event_id WHERE h.what <> 'sent'
    UNION ALL
    SELECT 2, coalesce(h.next_step, ''), CASE WHEN h.command_id ~ ':undo(\.[0-9]+)?$' THEN 'undo' ELSE 'do' END, 'sent', h.next_type, h.command_id
    WHERE h.command_id IS NOT NULL
) e
WHERE h.name = $1 AND h.key = $2
ORDER BY h.id, e.n
