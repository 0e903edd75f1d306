-- The events of this log that the event with id $1 caused, at most 100.
--
-- Locks   none.
-- Index   outbox_causation (causation_id).
-- Called  by Inspector.Event.
SELECT seq, source::text, event_id::text, type::text, created_at
FROM (SELECT seq, source, event_id, type, created_at FROM postroom.outbox WHERE causation_id = $1::text LIMIT 100) o
ORDER BY seq;
