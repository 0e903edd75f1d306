-- The events to try. Like replay_items.sql, the statement takes at most $12 events that match the
-- filter $1 to $11 and are in no running replay. It begins with the event that died first. Then it
-- leaves out outgoing events, and returns at most $13 events of each cause.
--
-- Locks   none.
-- Index   those of list.sql of internal/held.
-- Called  by Store.DryRun.
SELECT id, handler, event_id, type, class, cause
FROM (
    SELECT id, handler, event_id, type, class, encode(cause, 'hex') AS cause, dead_at,
           row_number() OVER (PARTITION BY cause ORDER BY dead_at, id) AS n
    FROM (SELECT * FROM postroom.dead_letters($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) d
          WHERE NOT EXISTS (SELECT FROM postroom.replay j WHERE j.id = d.replay AND j.state = 'running')
          ORDER BY dead_at, id
          LIMIT $12) h
    WHERE handler <> 'outbox'
) s
WHERE n <= $13
ORDER BY dead_at, id;
