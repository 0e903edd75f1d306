-- The handlers of the events of replay $1, or of the events with the ids $2, which are held or
-- discarded.
--
-- Locks   none.
-- Index   replay_event_pkey (replay, n), held_pkey (id), archive_pkey (id).
-- Order   by handler.
-- Called  by Tables.Audit.
SELECT handler::text FROM postroom.replay_event WHERE replay = $1::bigint
UNION
SELECT handler::text FROM postroom.held WHERE id = ANY ($2::bigint[])
UNION
SELECT handler::text FROM postroom.archive WHERE id = ANY ($2::bigint[])
ORDER BY 1;
