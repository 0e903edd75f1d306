-- Return the row of key $3 of principal $2 in scope $1. live says that the row has not expired,
-- leased says that an attempt holds the key, and begun says that a step is done or has begun. What has
-- expired has expired by this database's clock and by the caller's: $4 is the latest time that the
-- caller believes.
--
-- The principal may also have its other form $5: the setting HashPrincipal has changed since the row
-- was stored. A row with that form counts only until it expires.
--
-- Locks   none.
-- Index   the primary key.
-- Called  by store.open and store.look.
SELECT scope, principal, key, fingerprint, state, attempts, fence, point,
       status, headers, body, ref, dropped, created_at, completed_at, expires_at,
       --guard:a-claim-that-ran-out-is-not-held 2 = @1.1
       --guard:a-key-ends-by-two-clocks 1 = expires_at > greatest(clock_timestamp(), $4::timestamptz)
       expires_at > least(clock_timestamp(), $4::timestamptz) AS live, coalesce(state = 'pending' AND lease_until > least(clock_timestamp(), $4::timestamptz), false) AS leased,
       coalesce(checkpoints NOT IN ('{}', '{"": {}}'), false) AS begun
FROM postroom.idempotency
WHERE scope = $1 AND principal IN ($2, $5) AND key = $3
  --guard:the-other-form-counts-until-it-expires true
  AND (principal = $2 OR expires_at > least(clock_timestamp(), $4::timestamptz))
--guard:the-form-that-counts-is-read remove
ORDER BY live DESC, state = 'complete' DESC, expires_at DESC
LIMIT 1;
