-- Fail if an event of the log has one of the ids and another digest. The failure aborts the
-- transaction.
--
-- $1 source, $2 ids, $3 their digests.
--
-- Locks   none.
-- Index   outbox_event (source, event_id).
-- Called  by Outbox.Write, if insert_one.sql inserted nothing.
SELECT postroom.refuse_conflict($1::text, $2::text[], $3::bytea[]);
