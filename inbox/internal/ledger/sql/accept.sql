-- Store events that do not come from a stream, for their handlers. Each array has one element for
-- each event. The statement returns the handler and the dedupe key of each event that it stored.
-- Each of these events has a row of inbox, is held and is due. The other events were decided
-- before: decided.sql compares their digests.
--
-- The arrays must not have two events with the same handler and dedupe key.
--
-- $1 handler   $2 dedupe key   $3 digest; NULL: any content counts as the same event
-- $4 to $16 the event   $17 lock_timeout, with its unit; NULL: the transaction's own applies
--
-- If the statement has the events of many callers, $17 is short: one event may wait for a
-- transaction that stores the same event, and the other callers must not wait for long.
--
-- Locks   the new rows. Waits for a transaction that is storing or deciding the same event.
-- Index   inbox's primary key.
-- Called  by Accepts.store.
WITH decided AS (
    INSERT INTO postroom.inbox (handler, dedupe_key, digest)
    SELECT e.handler, e.dedupe_key, e.digest
    FROM set_config('lock_timeout', coalesce($17::text, current_setting('lock_timeout')), true),
         unnest($1::text[], $2::text[], $3::bytea[]) AS e (handler, dedupe_key, digest)
    ORDER BY e.handler, e.dedupe_key -- transactions that write rows in different orders could wait for each other
    ON CONFLICT (handler, dedupe_key) DO NOTHING
    RETURNING handler, dedupe_key
)
INSERT INTO postroom.held (handler, dedupe_key, next_at, attempts, solitary, logged_at, source, event_id, type, subject, key,
                           content_type, correlation_id, causation_id, occurred_at, trace_parent, trace_state, headers, data)
SELECT handler, dedupe_key, now(), 0, false, now(), source, event_id, type, subject, key,
       content_type, correlation_id, causation_id, occurred_at, trace_parent, trace_state, headers::jsonb, data
FROM unnest($1::text[], $2::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[],
            $10::text[], $11::text[], $12::timestamptz[], $13::text[], $14::text[], $15::text[], $16::bytea[])
    AS e (handler, dedupe_key, source, event_id, type, subject, key, content_type,
          correlation_id, causation_id, occurred_at, trace_parent, trace_state, headers, data)
JOIN decided USING (handler, dedupe_key)
RETURNING handler, dedupe_key;
