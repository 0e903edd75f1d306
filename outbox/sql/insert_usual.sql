-- Append one event of the usual kind: its id was made just now, so no other event can have
-- it; its subject is its type, its body is JSON, and it has none of the rare attributes. So
-- there is nothing to compare. Searching for the id would cost a sixth of the insert, and each
-- parameter has a cost, too, even without a value.
--
-- Locks   the new row.
-- Index   outbox_event (source, event_id).
-- Called  by Outbox.Write, Outbox.Queue and Outbox.WriteSQL.
INSERT INTO postroom.outbox (source, event_id, digest, type, subject, key, trace_parent, data, checked)
VALUES ($1::text, $2::text, $3::bytea, $4::text, $4::text, $5::text, $6::text, $7::bytea, true);
