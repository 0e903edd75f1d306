-- Append one event of the usual kind: its id was made just now, and so is nobody
-- else's; its subject is its type, its body is JSON, and it has none of the attributes
-- that few events have. There is nothing to compare, and looking whether it is there
-- costs a sixth of an insert; each parameter costs as well, with a value or without.
--
-- Locks   the new row.
-- Index   outbox_event (source, event_id).
-- Called  by Outbox.Write, Outbox.Queue and Outbox.WriteSQL.
INSERT INTO postroom.outbox (source, event_id, digest, type, subject, key, trace_parent, data, checked)
VALUES ($1::text, $2::text, $3::bytea, $4::text, $4::text, $5::text, $6::text, $7::bytea, true);
