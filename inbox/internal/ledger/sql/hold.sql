-- Hold events that handlers do not handle now. Only the process that inserts the row of
-- inbox holds the event. Each array has one element for each event. The statement returns a
-- result for each event, in the order of the arrays:
--   held     the event is held; if an earlier event of its key is held, it waits behind that event
--   decided  not stored: the event was decided before, or another process has just decided it
--   free     not stored: the event should only wait ($28), but no event of its key is held
--   late     not stored: a held event has its place, or all held events of its key are later
--   stale    not stored: the event has a key, and the term in which it was read is over
--
-- $1 handler   $2 dedupe key   $3 digest   $4 whether to decide the events; otherwise
-- their rows of inbox exist already   $5 the column pos   $6 the time
-- from now until the next attempt; NULL for a dead event   $7 attempts made
-- $8 solitary   $9 class, NULL if nothing failed   $10 cause
-- $11 the failure   $12 to $25 the event   $26 its headers as they came
-- $27 the key that it blocks or waits for, NULL for none   $28 whether to hold it only if
-- it has to wait behind another event of its key   $29 the epoch in which it was read
-- $30 whether its attempt counts as snoozed
--
-- Locks   the keys, in their order; the new rows. Waits for a transaction that is
--         deciding the same event.
-- Index   inbox's primary key, held_owed (handler, dedupe_key), held_chain_pos.
-- Called  by DB.Store, Handler.StoreIn, Handler.HoldIn and Accepts.holdConflicts.
WITH e AS (
    SELECT *
    FROM unnest($1::text[], $2::text[], $3::bytea[], $5::bigint[], $6::interval[], $7::int[], $8::bool[], $9::text[], $10::bytea[],
                $11::text[], $12::timestamptz[], $13::text[], $14::text[], $15::text[], $16::text[], $17::text[], $18::text[],
                $19::text[], $20::text[], $21::timestamptz[], $22::text[], $23::text[], $24::text[], $25::bytea[], $26::bytea[],
                $27::text[], $28::bool[], $29::bigint[], $30::bool[])
        WITH ORDINALITY
        AS e (handler, dedupe_key, digest, pos, after, attempts, solitary, class, cause,
              failure, logged_at, source, event_id, type, subject, key, content_type,
              correlation_id, causation_id, occurred_at, trace_parent, trace_state, headers, data, raw_headers, chain, behind, epoch, snoozed, n)
), placed AS MATERIALIZED ( -- sorted: transactions that lock keys in different orders could wait for each other
    SELECT *, CASE WHEN chain IS NULL THEN 'free' ELSE postroom.enter_key(handler, chain, pos, epoch) END AS place
    FROM (SELECT * FROM e ORDER BY handler, chain, pos) e
), chosen AS (
    SELECT * FROM placed WHERE place = 'behind' OR place = 'free' AND NOT behind
), decided AS (
    INSERT INTO postroom.inbox (handler, dedupe_key, digest)
    SELECT handler, dedupe_key, digest FROM chosen WHERE $4::bool
    ORDER BY handler, dedupe_key -- sorted for the same reason as in placed
    ON CONFLICT (handler, dedupe_key) DO NOTHING
    RETURNING handler, dedupe_key
), owed AS (
    SELECT *, chain IS NOT NULL AND (place = 'behind' OR row_number() OVER (PARTITION BY handler, chain ORDER BY pos) > 1) AS waits
    FROM chosen
    --guard:inbox-row-as-the-gate-of-a-failure 2 true
    --planted:held-without-the-gate 2 true
    WHERE NOT $4::bool OR (handler, dedupe_key) IN (SELECT handler, dedupe_key FROM decided)
), stored AS (
    INSERT INTO postroom.held (handler, dedupe_key, chain, pos, next_at, dead_at, attempts, solitary, class, cause, failures,
                               first_failed_at, snoozed_at, logged_at, source, event_id, type, subject, key, content_type,
                               correlation_id, causation_id, occurred_at, trace_parent, trace_state, headers, data, raw_headers)
    SELECT handler, dedupe_key, chain, pos, CASE WHEN NOT waits THEN now() + after END, CASE WHEN after IS NULL THEN now() END, attempts,
           solitary, class, cause,
           CASE WHEN class IS NOT NULL THEN pg_catalog.jsonb_build_array(failure::jsonb || pg_catalog.jsonb_build_object('at', now())) END,
           CASE WHEN class IS NOT NULL THEN now() END, CASE WHEN snoozed THEN now() END,
           coalesce(logged_at, now()), source, event_id, type, subject, key, content_type,
           correlation_id, causation_id, occurred_at, trace_parent, trace_state, headers::jsonb, data, raw_headers
    FROM owed
    --guard:an-event-that-the-handler-decided-is-held-once remove
    ON CONFLICT (handler, dedupe_key) WHERE dedupe_key IS NOT NULL DO NOTHING -- not $4, and the statement is repeated because its answer was lost
)
SELECT CASE WHEN place IN ('late', 'stale') THEN place WHEN place = 'free' AND behind THEN 'free'
            WHEN n IN (SELECT n FROM owed) THEN 'held' ELSE 'decided' END
FROM placed
ORDER BY n;
