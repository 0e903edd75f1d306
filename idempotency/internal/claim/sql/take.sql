-- Claim the row of key $3 of principal $2 in scope $1, as it was read with fence $9 and
-- fingerprint $10: its claim ran out, it failed, or it expired. An expired row begins
-- again, but its fence goes on, so that its last holder still can change nothing. It returns
-- the steps that are done, because a holder may have recorded more steps since the row was read.
-- It also returns the identity of this Postroom.
--
-- Locks   the row; the operation, for as long as this statement takes.
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
    expires_at = clock_timestamp() + $8::interval
WHERE scope = $1 AND principal = $2 AND key = $3 AND fence = $9 AND fingerprint = $10
  AND (expires_at <= clock_timestamp() OR state <> 'complete')
  AND (state <> 'pending' OR lease_until <= clock_timestamp())
  AND pg_try_advisory_xact_lock($7::bigint)
RETURNING fence, attempts, point, checkpoints, (SELECT id::text FROM postroom.instance WHERE only_one);
