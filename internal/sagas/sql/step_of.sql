-- The steps of sagas to which event $1 belongs: event $1 is the command of the step, or it was
-- caused by that command. $2 are the events that caused it. For a command, the time is when it was
-- written. For another event, the time and the text are from the history row of the saga that used
-- the event; they are NULL and empty if no saga has used it.
--
-- Locks   none.
-- Index   saga_step_command (command_id); for other events saga_step's primary key, for one instance.
-- Order   by time.
-- Called  by StepsOf.
SELECT c.name, c.key, c.next_step, CASE WHEN c.command_id ~ ':undo(\.[0-9]+)?$' THEN 'undo' ELSE 'do' END, c.command_id = $1, coalesce(r.what, ''),
       CASE WHEN c.command_id = $1 THEN c.at ELSE r.at END
FROM postroom.saga_step c
LEFT JOIN LATERAL (
    SELECT what, at FROM postroom.saga_step
    WHERE name = c.name AND key = c.key AND event_id = $1
    ORDER BY id
    LIMIT 1
) r ON c.command_id <> $1
WHERE c.command_id = ANY (array_append($2::text[], $1::text))
ORDER BY c.at
LIMIT 100
