-- Append one event whose id was made just now, and so is nobody else's: there is
-- nothing to compare, and looking whether it is there costs a sixth of an insert.
--
-- Locks   the new row.
-- Index   outbox_event (source, event_id).
-- Called  by Outbox.Write, Outbox.Queue and Outbox.WriteSQL.
INSERT INTO postroom.outbox (source, event_id, digest, type, subject, key, content_type, correlation_id,
                             causation_id, occurred_at, not_before, trace_parent, trace_state, headers, data, checked)
VALUES ($1::text, $2::text, $3::bytea, $4::text, $5::text, $6::text, $7::text, $8::text,
        $9::text, $10::timestamptz, $11::timestamptz, $12::text, $13::text, $14::jsonb, $15::bytea, true);
