-- The handler, the source and the event id of the row of held with the id $1.
--
-- Locks   none.
-- Index   held_pkey (id).
-- Called  by action.audit.
SELECT handler::text, postroom.clipped(source, 1024), postroom.clipped(event_id, 1024) FROM postroom.held WHERE id = $1;
