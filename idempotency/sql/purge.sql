-- Remove up to $1 rows that have expired and that no attempt holds, by this database's clock and by
-- the caller's: $2 is the latest time that the caller believes. The statement begins with the row
-- that expired first.
--
-- Locks   the removed rows; skips rows that other transactions have locked.
-- Index   idempotency_expiry (expires_at).
-- Called  by Guard.Purge.
DELETE FROM postroom.idempotency
WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM postroom.idempotency
    --guard:purge-keeps-a-claim 2 true
    --guard:purge-keeps-what-is-live 1 true
    --guard:a-purge-believes-two-clocks 1 = expires_at <= greatest(clock_timestamp(), $2::timestamptz)
    WHERE expires_at <= least(clock_timestamp(), $2::timestamptz) AND (state <> 'pending' OR lease_until <= least(clock_timestamp(), $2::timestamptz))
    ORDER BY expires_at
    LIMIT $1
    --guard:purge-waits-for-no-lock do FOR UPDATE
    FOR UPDATE SKIP LOCKED));
