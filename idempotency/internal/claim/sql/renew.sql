-- Renew the claim of owner $4 with fence $5, until $6 from now. The row expires $7 after the claim
-- ends, or later. So an attempt may run for longer than $7: if its process dies, the next attempt
-- still finds the steps that are done. If the statement changes no row, owner $4 has lost the
-- claim.
--
-- Locks   the row.
-- Index   the primary key.
-- Called  by Claim.renew.
UPDATE postroom.idempotency
SET lease_until = clock_timestamp() + $6::interval,
    --guard:a-renewal-keeps-the-row 2.2 = @1 - @2 - @3
    expires_at = greatest(expires_at, clock_timestamp() + $6::interval + $7::interval)
--guard:renew-has-owner-and-fence 4,5,6 true
WHERE scope = $1 AND principal = $2 AND key = $3 AND owner = $4::uuid AND fence = $5 AND state = 'pending';
