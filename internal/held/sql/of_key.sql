-- The ids of at most $2 held events to which their producers gave the key $1. If $2 is NULL: the
-- ids of all these events.
--
-- Locks   none.
-- Index   held_event_key (left(event_key, 255)).
-- Called  by Reader.ofKey.
SELECT id FROM postroom.held WHERE left(event_key, 255) = left($1, 255) AND event_key = $1 LIMIT $2;
