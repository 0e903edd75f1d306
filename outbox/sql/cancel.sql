-- Cancel the scheduled event with the source $1 and the id $2. Returns whether the event is
-- cancelled.
--
-- Locks   the event, by an advisory lock, until the transaction ends; its held row, if it has one. If the
--         answer is false, no lock stays.
-- Index   outbox_event (source, event_id), held_outgoing (pos), archive_outgoing (pos); held_event (event_id) and archive_event
--         (event_id) if the log does not have the event.
-- Called  by Outbox.Cancel.
SELECT postroom.cancel($1::text, $2::text);
