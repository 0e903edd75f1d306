-- Renew the claim of owner $4 with fence $5, until $6 from now. If the statement changes no row,
-- owner $4 has lost the claim.
--
-- Locks   the row.
-- Index   the primary key.
-- Called  by Claim.renew.
UPDATE postroom.idempotency
SET lease_until = clock_timestamp() + $6::interval
WHERE scope = $1 AND principal = $2 AND key = $3 AND owner = $4::uuid AND fence = $5 AND state = 'pending';
