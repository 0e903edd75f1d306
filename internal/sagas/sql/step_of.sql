-- The steps of sagas that event $1 is part of: event $1 is the step's command, or was caused by
-- that command. $2 are the ids of the events that caused event $1. If event $1 is the command, the
-- time is when the saga wrote it. If it is another event, the time and the text are from the row of
-- the history in which the saga used the event. If the saga has not used the event, the time is
-- NULL and the text is empty.
--
-- Locks   none.
-- Index   saga_step_command (command_id); for each command found, the primary key of saga_step.
-- Order   by time.
-- Called  by StepsOf.
SELECT c.name, c.key, coalesce(c.next_step, ''), CASE WHEN c.command_id ~ ':undo(\.[0-9]+)?$' THEN 'undo' ELSE 'do' END, c.command_id = $1, coalesce(r.what, ''),
       CASE WHEN c.command_id = $1 THEN c.at ELSE r.at END
FROM postroom.saga_step c
LEFT JOIN LATERAL (
    SELECT what, at FROM postroom.saga_step
    WHERE name = c.name AND key = c.key AND event_id = $1
    ORDER BY id
    LIMIT 1
) r ON c.command_id <> $1
WHERE c.command_id = ANY (pg_catalog.array_append($2::text[], $1::text))
ORDER BY c.at
LIMIT 100
