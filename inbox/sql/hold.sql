-- Hold events that handlers do not handle now. The ledger row is the gate: who
-- inserts it holds the event. What is not returned another process decided. An
-- event is one element of each array.
--
-- $1 handler   $2 dedupe key   $3 digest   $4 whether to decide them; otherwise
-- they were just decided in this transaction   $5 sequence in the stream   $6 when
-- the next attempt is due, from now; NULL for a dead one   $7 attempts made
-- $8 solitary   $9 class, NULL where nothing failed   $10 fingerprint
-- $11 the failure   $12 to $25 the event   $26 its headers as they came
--
-- Locks   the new rows; waits for a transaction that is deciding the same event.
-- Index   inbox's primary key, held_owed (handler, dedupe_key).
-- Called  by consumer.store, holder.write and consumer.applyBatch.
WITH e AS (
    SELECT *
    FROM unnest($1::text[], $2::text[], $3::bytea[], $5::bigint[], $6::interval[], $7::int[], $8::bool[], $9::text[], $10::bytea[],
                $11::text[], $12::timestamptz[], $13::text[], $14::text[], $15::text[], $16::text[], $17::text[], $18::text[],
                $19::text[], $20::text[], $21::timestamptz[], $22::text[], $23::text[], $24::text[], $25::bytea[], $26::bytea[])
        AS e (handler, dedupe_key, digest, pos, after, attempts, solitary, class, fingerprint,
              failure, logged_at, source, event_id, type, subject, event_key, content_type,
              correlation_id, causation_id, occurred_at, trace_parent, trace_state, headers, data, raw_headers)
), decided AS (
    INSERT INTO postroom.inbox (handler, dedupe_key, digest)
    SELECT handler, dedupe_key, digest FROM e WHERE $4::bool
    ORDER BY handler, dedupe_key -- two that did so in different orders could wait for each other
    ON CONFLICT (handler, dedupe_key) DO NOTHING
    RETURNING handler, dedupe_key
)
INSERT INTO postroom.held (handler, dedupe_key, pos, next_at, dead_at, attempts, solitary, class, fingerprint, failures,
                           first_failed_at, logged_at, source, event_id, type, subject, event_key, content_type,
                           correlation_id, causation_id, occurred_at, trace_parent, trace_state, headers, data, raw_headers)
SELECT handler, dedupe_key, pos, now() + after, CASE WHEN after IS NULL THEN now() END, attempts,
       solitary, class, fingerprint,
       CASE WHEN class IS NOT NULL THEN jsonb_build_array(failure::jsonb || jsonb_build_object('at', now())) END,
       CASE WHEN class IS NOT NULL THEN now() END,
       coalesce(logged_at, now()), source, event_id, type, subject, event_key, content_type,
       correlation_id, causation_id, occurred_at, trace_parent, trace_state, headers::jsonb, data, raw_headers
FROM e
WHERE NOT $4::bool OR (handler, dedupe_key) IN (SELECT handler, dedupe_key FROM decided)
RETURNING handler, dedupe_key;
