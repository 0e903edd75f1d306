-- Append one event. If this inserts no row, the id is taken: then Outbox.Write sends compare.sql,
-- which compares the contents. write_one.sql does both in one statement, but costs more for each
-- event.
--
-- Locks   the new row; waits for a transaction that is writing the same id.
-- Index   outbox_event (source, event_id).
-- Called  by Outbox.Write.
INSERT INTO postroom.outbox (source, event_id, digest, type, subject, key, content_type, correlation_id,
                             causation_id, occurred_at, not_before, trace_parent, trace_state, headers, data, checked)
VALUES ($1::text, $2::text, $3::bytea, $4::text, $5::text, $6::text, $7::text, $8::text,
        $9::text, $10::timestamptz, $11::timestamptz, $12::text, $13::text, $14::jsonb, $15::bytea, true)
ON CONFLICT (source, event_id) DO NOTHING;
