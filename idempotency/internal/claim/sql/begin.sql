-- Record that call $6 begins, with key $7 for the vendor, under the claim of owner $4 with fence
-- $5. The call may be made if it did not begin before, or if it first began less than $8 ago. $9 is
-- the id of this call. The statement may be repeated, because its answer was lost: it counts the
-- call once. If only $9 began, no call was made yet, so the call may be made.
--
-- The statement returns whether the call may be made, and what is recorded now: when the call first
-- began, with which key, and how many times it began without a known outcome. If the call may not
-- be made, the statement changes nothing. If it returns no row, owner $4 has lost the claim.
--
-- Locks   the row.
-- Index   the primary key.
-- Called  by Claim.Begin.
WITH mine AS (
    SELECT scope, principal, key, checkpoints -> '' -> $6::text AS was
    FROM postroom.idempotency
    --guard:begin-has-owner-and-fence 4,5,6 true
    WHERE scope = $1 AND principal = $2 AND key = $3 AND owner = $4::uuid AND fence = $5 AND state = 'pending'
    FOR UPDATE
), told AS (
    SELECT scope, principal, key,
           --guard:a-call-beyond-its-window-is-not-made true
           was IS NULL OR (was ->> 'since')::timestamptz + $8::interval > clock_timestamp()
           --guard:a-repeated-begin-knows-its-call false
           OR (was ->> 'call' IS NOT DISTINCT FROM $9::text AND (was ->> 'calls')::int = 1) AS free,
           coalesce((was ->> 'since')::timestamptz, clock_timestamp()) AS since,
           coalesce(was ->> 'key', $7::text) AS called_with,
           --guard:a-repeated-begin-is-one-call 2.1 = true
           coalesce((was ->> 'calls')::int, 0) + (was ->> 'call' IS DISTINCT FROM $9::text)::int AS calls,
           coalesce((was ->> 'calls')::int, 0) AS before
    FROM mine
), noted AS (
    UPDATE postroom.idempotency AS i
    SET checkpoints = coalesce(i.checkpoints, '{}') || pg_catalog.jsonb_build_object('', coalesce(i.checkpoints -> '', '{}')
        || pg_catalog.jsonb_build_object($6::text, pg_catalog.jsonb_build_object('since', told.since, 'key', told.called_with, 'calls', told.calls, 'call', $9::text)))
    FROM told
    WHERE i.scope = told.scope AND i.principal = told.principal AND i.key = told.key AND told.free
)
SELECT free, since, called_with, CASE WHEN free THEN calls ELSE before END FROM told;
