-- Store a republish and its audit row, in one statement. If the same request is running already,
-- the statement stores nothing and returns no row.
--
-- $1 actor   $2 reason   $3 kind   $4 since   $5 until   $6 types   $7 keys   $8 lo
-- $9 hi   $10 seqs   $11 events   $12 rate   $13 digest   $14 the request, as JSON
--
-- Locks   the new rows; waits for a transaction that starts the same republish.
-- Index   republish_digest.
-- Called  by Store.Republish and Store.RepublishSeqs.
WITH made AS (
    INSERT INTO postroom.republish (actor, reason, kind, since, until, types, keys, lo, hi, seqs, events, rate, digest, passed)
    VALUES ($1, $2, $3, $4::timestamptz, $5::timestamptz, $6::text[], $7::text[], $8::bigint, $9::bigint, $10::int8multirange, $11, $12, $13, $8::bigint - 1)
    ON CONFLICT (digest) WHERE state = 'running' DO NOTHING
    RETURNING *
), noted AS (
    INSERT INTO postroom.audit (actor, action, reason, events, details)
    SELECT actor, CASE kind WHEN 'range' THEN 'republish' ELSE kind END, reason, events, $14::jsonb || pg_catalog.jsonb_build_object('republish', id)
    FROM made
)
SELECT id, kind, created_at, actor, reason, since, until, types, keys, lo, hi, rate, state, events, published, skipped, held, ended_at
FROM made;
