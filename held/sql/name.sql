-- The handler, the source and the id of the event with the id $1 in held.
--
-- Locks   none.
-- Index   held_pkey (id).
-- Called  by action.audit.
SELECT handler::text, postroom.clipped(source, 1024), postroom.clipped(event_id, 1024) FROM postroom.held WHERE id = $1;
