-- The steps of sagas of which event $1 is a command, or to whose command it belongs: the events $2
-- are its causes. Of a command when it was written. Of other events when the saga heeded it, and
-- what it recorded then; nothing if it has not.
--
-- Locks   none.
-- Index   saga_step_command (command_id); of the others saga_step's primary key, for one instance.
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
