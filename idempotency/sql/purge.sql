-- Remove up to $1 rows that have expired and that no attempt holds. The statement begins with the
-- row that expired first.
--
-- Locks   the removed rows; skips rows that other transactions have locked.
-- Index   idempotency_expiry (expires_at).
-- Called  by Guard.Purge.
DELETE FROM postroom.idempotency
WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM postroom.idempotency
    --guard:purge-keeps-a-claim 2 true
    --guard:purge-keeps-what-is-live 1 true
    WHERE expires_at <= clock_timestamp() AND (state <> 'pending' OR lease_until <= clock_timestamp())
    ORDER BY expires_at
    LIMIT $1
    --guard:purge-waits-for-no-lock do FOR UPDATE
    FOR UPDATE SKIP LOCKED));
