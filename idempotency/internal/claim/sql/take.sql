-- Claim the row of key $3 of principal $2 in scope $1 for owner $5, until $6 from now. The row must
-- still have fence $9 and fingerprint $10, as the caller read them. Its claim must have run out,
-- its attempt must have failed, or its answer must have expired, by this database's clock and by the
-- caller's: $11 is the latest time that the caller believes. If the row has expired, the
-- statement removes its steps and counts attempts from 1 again, but the fence rises as usual, so
-- that the previous holder can change nothing. The statement returns the steps that are done,
-- because a holder may have recorded more steps since the caller read the row. It also returns the
-- id of this Postroom database. It returns no row if it cannot claim the row, or if there is
-- a row that has not expired with the principal in its other form $12, or if a transaction has the
-- key's lock $7. The row then expires $8 after the claim ends: see renew.sql.
--
-- Locks   the row; the key's advisory lock $7, until the transaction ends.
-- Index   the primary key.
-- Called  by Claim.TakeOver, after hold.sql.
UPDATE postroom.idempotency
--guard:a-claim-has-a-fence-of-its-own 3 remove
SET state = 'pending', owner = $5::uuid, fence = fence + 1, lease_until = clock_timestamp() + $6::interval,
    fingerprint = $4,
    --guard:what-expired-has-no-attempts 2 = @2
    attempts = CASE WHEN expires_at > least(clock_timestamp(), $11::timestamptz) THEN attempts + 1 ELSE 1 END,
    --guard:what-expired-has-no-point remove
    point = CASE WHEN expires_at > least(clock_timestamp(), $11::timestamptz) THEN point END,
    --guard:what-expired-has-no-steps remove
    checkpoints = CASE WHEN expires_at > least(clock_timestamp(), $11::timestamptz) THEN checkpoints END,
    --guard:what-expired-is-as-old-as-its-claim remove
    created_at = CASE WHEN expires_at > least(clock_timestamp(), $11::timestamptz) THEN created_at ELSE clock_timestamp() END,
    --guard:a-claim-has-no-answer 2,4 remove
    status = NULL, headers = NULL, body = NULL, ref = NULL, dropped = false, completed_at = NULL,
    --guard:a-row-outlives-its-next-claim 2.2 remove
    expires_at = clock_timestamp() + $6::interval + $8::interval
--guard:take-has-fence-and-fingerprint 4,5 true
--guard:take-has-the-fence 4 true
WHERE scope = $1 AND principal = $2 AND key = $3 AND fence = $9 AND fingerprint = $10
  --guard:take-leaves-an-answer true
  AND (expires_at <= least(clock_timestamp(), $11::timestamptz) OR state <> 'complete')
  --guard:take-leaves-a-claim true
  AND (state <> 'pending' OR lease_until <= least(clock_timestamp(), $11::timestamptz))
  --guard:take-waits-for-transactions true
  --guard:a-take-over-sees-what-the-last-holder-did 2 true
  AND (pg_try_advisory_xact_lock($7::bigint) AND coalesce(current_setting('postroom_claim.held', true), '') <> 'false')
  --guard:a-take-over-leaves-the-row-of-the-other-form true
  AND ($12 = $2 OR NOT EXISTS (SELECT FROM postroom.idempotency i WHERE i.scope = $1 AND i.principal = $12 AND i.key = $3
                               AND i.expires_at > least(clock_timestamp(), $11::timestamptz)))
RETURNING fence, attempts, point, checkpoints, (SELECT id::text FROM postroom.instance WHERE only_one);
