-- The row of the event with id $2 and source $3 for handler $1, and whether its next attempt is
-- more than two seconds away. The row is in held or, if the event is discarded, in archive. If
-- there is no row, the handler has finished the event.
--
-- Locks   none.
-- Index   held_owed (handler, dedupe_key), archive_event (event_id).
-- Called  by ApplyExternal.
SELECT attempts, dead_at IS NOT NULL, coalesce(class, ''), coalesce(failures -> -1 ->> 'text', ''),
       coalesce(claimed_by IS NULL AND class IS NOT NULL AND next_at > now() + interval '2 seconds', false),
       coalesce(extract(epoch FROM next_at - now()), 0)::float8
FROM postroom.held
WHERE handler = $1 AND event_id = $2 AND source = $3
UNION ALL
SELECT attempts, true, class, coalesce(failures -> -1 ->> 'text', ''), false, 0
FROM postroom.archive
WHERE handler = $1 AND event_id = $2 AND source = $3 AND class = 'discarded';
