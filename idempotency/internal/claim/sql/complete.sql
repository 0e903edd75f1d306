-- Store the answer under the claim of owner $4 with fence $5. The answer expires $11 from now. If
-- $12 is set, the answer expires $11 after the key was first claimed, but at the earliest half of
-- $11 from now. Without this minimum, the answer could expire at once if attempts failed for a long
-- time. If the statement changes no row, owner $4 has lost the claim.
--
-- Locks   the row.
-- Index   the primary key.
-- Called  by Claim.Complete.
UPDATE postroom.idempotency
SET state = 'complete', owner = NULL, lease_until = NULL, status = $6, headers = $7, body = $8, ref = $9, dropped = $10,
    completed_at = clock_timestamp(),
    --guard:the-time-counts-from-creation 2.1.1.2 = clock_timestamp()
    expires_at = greatest(CASE WHEN $12::boolean THEN created_at ELSE clock_timestamp() END + $11::interval,
                          --guard:a-late-answer-is-kept = created_at
                          clock_timestamp() + $11::interval / 2::float8)
--guard:complete-has-owner-and-fence 4,5,6 true
WHERE scope = $1 AND principal = $2 AND key = $3 AND owner = $4::uuid AND fence = $5 AND state = 'pending';
