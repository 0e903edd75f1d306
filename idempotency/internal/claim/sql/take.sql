-- Claim the row of key $3 of principal $2 in scope $1 for owner $5, until $6 from now. The row must
-- still have fence $9 and fingerprint $10, as the caller read them. Its claim must have run out,
-- its attempt must have failed, or its answer must have expired. If the row has expired, the
-- statement removes its steps and counts attempts from 1 again, but the fence rises as usual, so
-- that the previous holder can change nothing. The statement returns the steps that are done,
-- because a holder may have recorded more steps since the caller read the row. It also returns the
-- id of this Postroom database. It returns no row if it cannot claim the row, or if a transaction
-- has the key's lock $7. The row then expires $8 after the claim ends: see renew.sql.
--
-- Locks   the row; the key's advisory lock $7, until this statement ends.
-- Index   the primary key.
-- Called  by Claim.TakeOver.
UPDATE postroom.idempotency
SET state = 'pending', owner = $5::uuid, fence = fence + 1, lease_until = clock_timestamp() + $6::interval,
    fingerprint = $4,
    attempts = CASE WHEN expires_at > clock_timestamp() THEN attempts + 1 ELSE 1 END,
    point = CASE WHEN expires_at > clock_timestamp() THEN point END,
    checkpoints = CASE WHEN expires_at > clock_timestamp() THEN checkpoints END,
    created_at = CASE WHEN expires_at > clock_timestamp() THEN created_at ELSE clock_timestamp() END,
    status = NULL, headers = NULL, body = NULL, ref = NULL, dropped = false, completed_at = NULL,
    expires_at = clock_timestamp() + $6::interval + $8::interval
WHERE scope = $1 AND principal = $2 AND key = $3 AND fence = $9 AND fingerprint = $10
  AND (expires_at <= clock_timestamp() OR state <> 'complete')
  AND (state <> 'pending' OR lease_until <= clock_timestamp())
  AND pg_try_advisory_xact_lock($7::bigint)
RETURNING fence, attempts, point, checkpoints, (SELECT id::text FROM postroom.instance WHERE only_one);
