-- Append one event. Where no row was inserted its id is taken, and compare.sql
-- says by which content: that statement is sent only then. As a part of this one
-- (see write_one.sql) it would be set up for each event.
--
-- Locks   the new row; waits for a transaction that is writing the same id.
-- Index   outbox_event (source, event_id).
-- Called  by Outbox.Write.
INSERT INTO postroom.outbox (source, event_id, digest, type, subject, key, content_type, correlation_id,
                             causation_id, occurred_at, not_before, trace_parent, trace_state, headers, data, checked)
VALUES ($1::text, $2::text, $3::bytea, $4::text, $5::text, $6::text, $7::text, $8::text,
        $9::text, $10::timestamptz, $11::timestamptz, $12::text, $13::text, $14::jsonb, $15::bytea, true)
ON CONFLICT (source, event_id) DO NOTHING;
