-- Append one event. The statement is faster than write.sql, because there are no arrays to unnest.
-- It calls refuse_conflict only if it inserted nothing. Outbox.Write instead sends insert_one.sql
-- and, if necessary, compare.sql. A batch cannot decide whether to send a second statement, because
-- the driver sends all its statements together.
--
-- Locks   the new row; waits for a transaction that is writing the same id.
-- Index   outbox_event (source, event_id).
-- Called  by Outbox.Queue and Outbox.WriteSQL.
WITH written AS (
    INSERT INTO postroom.outbox (source, event_id, digest, type, subject, key, content_type, correlation_id,
                                 causation_id, occurred_at, not_before, trace_parent, trace_state, headers, data, checked)
    VALUES ($1::text, $2::text, $3::bytea, $4::text, $5::text, $6::text, $7::text, $8::text,
            $9::text, $10::timestamptz, $11::timestamptz, $12::text, $13::text, $14::jsonb, $15::bytea, true)
    ON CONFLICT (source, event_id) DO NOTHING
    RETURNING event_id
)
SELECT postroom.refuse_conflict($1::text, ARRAY[$2::text], ARRAY[$3::bytea])
WHERE NOT EXISTS (SELECT FROM written);
