-- Raise an error where one of the ids is that of an event with another digest,
-- and so abort the transaction.
--
-- $1 source, $2 ids, $3 their digests.
--
-- Locks   none.
-- Index   outbox_event (source, event_id).
-- Called  by Outbox.Write after insert_one.sql, where that inserted nothing.
SELECT postroom.refuse_conflict($1::text, $2::text[], $3::bytea[]);
