-- Return the claim of owner $4 on key $3 of principal $2 in scope $1, as claim.sql and take.sql return
-- it. If the answer to one of these was lost, this statement says whether it claimed the key: each
-- attempt has an owner of its own.
--
-- Locks   none.
-- Index   the primary key.
-- Called  by Claim.take.
SELECT fence, attempts, point, checkpoints, (SELECT id::text FROM postroom.instance WHERE only_one)
FROM postroom.idempotency
WHERE scope = $1 AND principal = $2 AND key = $3 AND owner = $4::uuid AND state = 'pending';
