-- Append events, in the order of the arrays. An event whose source and id are taken is not
-- inserted. If there are such events, refuse_conflict compares all events with the log, and fails
-- if the content of one differs. The function sees the rows that this statement inserted, and the
-- rows that other transactions committed while this statement waited for them. A query in this
-- statement would see neither.
--
-- $1 is the source. Each other parameter is the array of a column, with NULL for an event that has
-- no value.
--
-- Locks   the new rows; waits for a transaction that is writing the same id.
-- Index   outbox_event (source, event_id).
-- Order   ORDER BY n: a lower position gets a lower seq.
-- Called  by Outbox.Write, Outbox.Queue and Outbox.WriteSQL.
WITH input AS (
    SELECT *
    FROM unnest($2::text[], $3::bytea[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[],
                $10::timestamptz[], $11::timestamptz[], $12::text[], $13::text[], $14::jsonb[], $15::bytea[])
        WITH ORDINALITY AS i (event_id, digest, type, subject, key, content_type, correlation_id, causation_id,
                              occurred_at, not_before, trace_parent, trace_state, headers, data, n)
), written AS (
    INSERT INTO postroom.outbox (source, event_id, digest, type, subject, key, content_type, correlation_id,
                                 causation_id, occurred_at, not_before, trace_parent, trace_state, headers, data, checked)
    SELECT $1::text, event_id, digest, type, subject, key, content_type, correlation_id,
           causation_id, occurred_at, not_before, trace_parent, trace_state, headers, data, true
    FROM input
    ORDER BY n
    ON CONFLICT (source, event_id) DO NOTHING
    RETURNING event_id
)
SELECT postroom.refuse_conflict($1::text, $2::text[], $3::bytea[])
WHERE (SELECT count(*) FROM written) < pg_catalog.cardinality($2::text[]);
