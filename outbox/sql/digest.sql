-- Whether the event with source $1 and id $2 has the content of digest $3.
--
-- Locks   none.
-- Index   outbox_event (source, event_id).
-- Called  by Outbox.Write, for an event that write.sql neither inserted nor saw.
SELECT digest = $3
FROM postroom.outbox
WHERE source = $1 AND event_id = $2;
