-- Remove rows as purge.sql does, and return them.
--
-- Locks   the removed rows; passes over those that others lock.
-- Index   idempotency_expiry (expires_at).
-- Called  by Guard.Purge, if Config.Archive is set.
DELETE FROM postroom.idempotency
WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM postroom.idempotency
    WHERE expires_at <= clock_timestamp() AND (state <> 'pending' OR lease_until <= clock_timestamp())
    ORDER BY expires_at
    LIMIT $1
    FOR UPDATE SKIP LOCKED))
RETURNING scope, principal, key, fingerprint, state, attempts, fence, point,
          status, headers, body, ref, dropped, created_at, completed_at, expires_at, false AS live, false AS leased, false AS begun;
