-- Claim key $3 of principal $2 in scope $1 for owner $5, until $6 from now. The row expires $8
-- after the claim ends: see renew.sql. The statement returns no row and changes nothing if the key
-- has a row, or if a transaction has the key's lock $7. Otherwise it returns the new claim and the
-- id of this Postroom database.
--
-- Locks   the new row; the key's advisory lock $7, until this statement ends.
-- Index   the primary key.
-- Called  by Claim.Take.
INSERT INTO postroom.idempotency (scope, principal, key, fingerprint, state, owner, fence, lease_until, expires_at)
--guard:a-row-outlives-its-first-claim 9.2 remove
SELECT $1, $2, $3, $4, 'pending', $5::uuid, 1, clock_timestamp() + $6::interval, clock_timestamp() + $6::interval + $8::interval
--guard:claims-wait-for-transactions true
WHERE pg_try_advisory_xact_lock($7::bigint)
ON CONFLICT (scope, principal, key) DO NOTHING
RETURNING fence, attempts, point, checkpoints, (SELECT id::text FROM postroom.instance WHERE only_one);
