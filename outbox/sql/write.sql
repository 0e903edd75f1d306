-- Append events, in the order of the arrays, and return those that were not
-- inserted because their source and id are taken: their position, and whether
-- the row that is there has the same content. NULL: the row is not visible to
-- this statement, because its transaction committed while this one waited.
--
-- $1 source, then one array for each column; NULL where the event has no value.
--
-- Locks   the new rows; waits for a transaction that is writing the same id.
-- Index   outbox_event (source, event_id).
-- Order   ORDER BY n: a lower position gets a lower seq.
-- Called  by Outbox.Write.
WITH input AS (
    SELECT *
    FROM unnest($2::text[], $3::bytea[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[],
                $10::timestamptz[], $11::text[], $12::text[], $13::jsonb[], $14::bytea[])
        WITH ORDINALITY AS i (event_id, digest, type, subject, key, content_type, correlation_id, causation_id,
                              occurred_at, trace_parent, trace_state, headers, data, n)
), written AS (
    INSERT INTO postroom.outbox (source, event_id, digest, type, subject, key, content_type, correlation_id,
                                 causation_id, occurred_at, trace_parent, trace_state, headers, data)
    SELECT $1, event_id, digest, type, subject, key, content_type, correlation_id,
           causation_id, occurred_at, trace_parent, trace_state, headers, data
    FROM input
    ORDER BY n
    ON CONFLICT (source, event_id) DO NOTHING
    RETURNING event_id
)
SELECT i.n::int, o.digest = i.digest AS same
FROM input i
LEFT JOIN postroom.outbox o ON o.source = $1 AND o.event_id = i.event_id
WHERE NOT EXISTS (SELECT FROM written w WHERE w.event_id = i.event_id)
ORDER BY i.n;
