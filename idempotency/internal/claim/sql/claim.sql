-- Claim key $3 of principal $2 in scope $1 for owner $5, until $6 from now. The row expires $8
-- after the claim ends: see renew.sql. The statement returns no row and changes nothing if the key
-- has a row, or a row that has not expired with the principal in its other form $9, or if a
-- transaction has the key's lock $7. $10 is the latest time that the caller believes. Otherwise it returns the new claim and the
-- id of this Postroom database.
--
-- Locks   the new row; the key's advisory lock $7, until the transaction ends.
-- Index   the primary key.
-- Called  by Claim.Take, after hold.sql.
INSERT INTO postroom.idempotency (scope, principal, key, fingerprint, state, owner, fence, lease_until, expires_at)
--guard:a-row-outlives-its-first-claim 9.2 remove
SELECT $1, $2, $3, $4, 'pending', $5::uuid, 1, clock_timestamp() + $6::interval, clock_timestamp() + $6::interval + $8::interval
--guard:claims-wait-for-transactions true
--guard:a-claim-sees-what-the-last-holder-did 2 true
WHERE (pg_try_advisory_xact_lock($7::bigint) AND coalesce(current_setting('postroom_claim.held', true), '') <> 'false')
  --guard:a-claim-leaves-the-row-of-the-other-form true
  AND ($9 = $2 OR NOT EXISTS (SELECT FROM postroom.idempotency i WHERE i.scope = $1 AND i.principal = $9 AND i.key = $3
                              AND i.expires_at > least(clock_timestamp(), $10::timestamptz)))
ON CONFLICT (scope, principal, key) DO NOTHING
RETURNING fence, attempts, point, checkpoints, (SELECT id::text FROM postroom.instance WHERE only_one);
