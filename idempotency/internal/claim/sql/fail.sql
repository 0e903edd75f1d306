-- Give back the claim of owner $4 with fence $5. The records of steps that are done remain for the
-- next attempt, until $6 from now.
--
-- Locks   the row.
-- Index   the primary key.
-- Called  by Claim.Fail.
UPDATE postroom.idempotency
SET state = 'failed', owner = NULL, lease_until = NULL, expires_at = clock_timestamp() + $6::interval
--guard:fail-has-owner-and-fence 4,5,6 true
WHERE scope = $1 AND principal = $2 AND key = $3 AND owner = $4::uuid AND fence = $5 AND state = 'pending';
