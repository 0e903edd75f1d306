-- Append one event as insert_usual.sql does, but with a given subject and content type.
--
-- Locks   the new row.
-- Index   outbox_event (source, event_id).
-- Called  by Outbox.Write, Outbox.Queue and Outbox.WriteSQL.
INSERT INTO postroom.outbox (source, event_id, digest, type, subject, key, content_type, trace_parent, data, checked)
VALUES ($1::text, $2::text, $3::bytea, $4::text, $5::text, $6::text, $7::text, $8::text, $9::bytea, true);
