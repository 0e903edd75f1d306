-- Fail, and so abort the transaction, if an event of the log with one of the ids has
-- another digest.
--
-- $1 source, $2 ids, $3 their digests.
--
-- Locks   none.
-- Index   outbox_event (source, event_id).
-- Called  by Outbox.Write, if insert_one.sql inserted nothing.
SELECT postroom.refuse_conflict($1::text, $2::text[], $3::bytea[]);
