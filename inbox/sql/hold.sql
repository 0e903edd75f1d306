-- Hold an event that handler $1 does not handle now. The ledger row is the gate:
-- who inserts it holds the event. No row inserted: another process decided.
--
-- $2 dedupe key   $3 digest   $4 whether to decide it; otherwise it was just
-- decided in this transaction   $5 sequence in its stream   $6 when the next
-- attempt is due, from now; NULL for a dead one   $7 attempts made
-- $8 solitary   $9 class, NULL where nothing failed   $10 fingerprint
-- $11 the failure   $12 to $25 the event   $26 its headers as they came
--
-- Locks   the new rows; waits for a transaction that is deciding the same event.
-- Index   inbox's primary key, held_owed (handler, dedupe_key).
-- Called  by consumer.store, consumer.applyBatch and Inbox.Accept.
WITH decided AS (
    INSERT INTO postroom.inbox (handler, dedupe_key, digest)
    SELECT $1::text, $2::text, $3::bytea WHERE $4::bool
    ON CONFLICT (handler, dedupe_key) DO NOTHING
    RETURNING handler
)
INSERT INTO postroom.held (handler, dedupe_key, pos, next_at, dead_at, attempts, solitary, class, fingerprint, failures,
                           first_failed_at, logged_at, source, event_id, type, subject, event_key, content_type,
                           correlation_id, causation_id, occurred_at, trace_parent, trace_state, headers, data, raw_headers)
SELECT $1::text, $2::text, $5::bigint, now() + $6::interval, CASE WHEN $6::interval IS NULL THEN now() END, $7::int,
       $8::bool, $9::text, $10::bytea,
       CASE WHEN $9::text IS NOT NULL THEN jsonb_build_array($11::jsonb || jsonb_build_object('at', now())) END,
       CASE WHEN $9::text IS NOT NULL THEN now() END,
       coalesce($12::timestamptz, now()), $13::text, $14::text, $15::text, $16::text, $17::text, $18::text,
       $19::text, $20::text, $21::timestamptz, $22::text, $23::text, $24::jsonb, $25::bytea, $26::bytea
WHERE NOT $4::bool OR EXISTS (SELECT FROM decided);
