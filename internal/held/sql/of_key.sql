-- The ids of at most $2 held events to which their producers gave the key $1. If $2 is NULL: the
-- ids of all these events.
--
-- Locks   none.
-- Index   held_key (left(key, 255)).
-- Called  by Reader.ofKey.
SELECT id FROM postroom.held WHERE left(key, 255) = left($1, 255) AND key = $1 LIMIT $2;
