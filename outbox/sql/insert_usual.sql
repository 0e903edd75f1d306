-- Append one event of the usual kind: its subject is its type, its data is JSON, and it has none of
-- the rare attributes. Package outbox has just made its id, so the log cannot have the id yet. So
-- the statement does not search for the id, which would cost a sixth of the insert. It has few
-- parameters, because each one has a cost, even if it is NULL.
--
-- Locks   the new row.
-- Index   outbox_event (source, event_id).
-- Called  by Outbox.Write, Outbox.Queue and Outbox.WriteSQL.
INSERT INTO postroom.outbox (source, event_id, digest, type, subject, key, trace_parent, data, checked)
VALUES ($1::text, $2::text, $3::bytea, $4::text, $4::text, $5::text, $6::text, $7::bytea, true);
