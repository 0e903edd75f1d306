-- Store events for handlers that do not come from a stream. An event is one element of each
-- array. It returns for each event, in the order of the arrays:
--   stored     it is held and due, and its row of inbox says that
--   duplicate  the handler decided this event before, or it is held
--   conflict   as duplicate, but the digests differ: it is another event with this identity
--   ''         another transaction stored the identity meanwhile: ask decided.sql
-- An identity must not occur twice in the arrays.
--
-- $1 handler   $2 dedupe key   $3 digest, NULL if any content counts as the same event
-- $4 to $16 the event
--
-- Locks   the new rows. Waits for a transaction that is storing or deciding the same event.
-- Index   inbox's primary key, held_owed (handler, dedupe_key).
-- Called  by Accepts.store.
WITH e AS (
    SELECT *
    FROM unnest($1::text[], $2::text[], $3::bytea[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[],
                $10::text[], $11::text[], $12::timestamptz[], $13::text[], $14::text[], $15::text[], $16::bytea[])
        WITH ORDINALITY
        AS e (handler, dedupe_key, digest, source, event_id, type, subject, event_key, content_type,
              correlation_id, causation_id, occurred_at, trace_parent, trace_state, headers, data, n)
), decided AS (
    INSERT INTO postroom.inbox (handler, dedupe_key, digest)
    SELECT handler, dedupe_key, digest FROM e
    ORDER BY handler, dedupe_key -- transactions that write rows in different orders could wait for each other
    ON CONFLICT (handler, dedupe_key) DO NOTHING
    RETURNING handler, dedupe_key
), stored AS (
    INSERT INTO postroom.held (handler, dedupe_key, next_at, attempts, solitary, logged_at, source, event_id, type, subject, event_key,
                               content_type, correlation_id, causation_id, occurred_at, trace_parent, trace_state, headers, data)
    SELECT handler, dedupe_key, now(), 0, false, now(), source, event_id, type, subject, event_key,
           content_type, correlation_id, causation_id, occurred_at, trace_parent, trace_state, headers::jsonb, data
    FROM e JOIN decided USING (handler, dedupe_key)
)
SELECT CASE WHEN decided.handler IS NOT NULL THEN 'stored' WHEN known.n IS NULL THEN ''
            WHEN known.digest <> e.digest THEN 'conflict' ELSE 'duplicate' END
FROM e
LEFT JOIN decided USING (handler, dedupe_key)
LEFT JOIN LATERAL (
    SELECT 1 AS n, inbox.digest FROM postroom.inbox
    WHERE decided.handler IS NULL AND inbox.handler = e.handler AND inbox.dedupe_key = e.dedupe_key
    OFFSET 0 -- so that the index is read, and only for rows that were not inserted
) known ON true
ORDER BY e.n;
