-- Record phase or call $6 and its result $7, in the transaction of the phase. It removes the
-- record that the call was begun. If $8 is set, the name must be free: a phase commits once,
-- and a call's result is recorded again if the first record was not answered. No row means
-- that owner $4 no longer has the claim with fence $5, or that the name is not free;
-- then the transaction must not commit.
--
-- Locks   the row.
-- Index   the primary key.
-- Called  by Claim.Record.
UPDATE postroom.idempotency
SET point = $6::text, checkpoints = coalesce(checkpoints #- ARRAY['', $6::text], '{}') || jsonb_build_object($6::text, $7::jsonb)
WHERE scope = $1 AND principal = $2 AND key = $3 AND owner = $4::uuid AND fence = $5 AND state = 'pending'
  AND NOT ($8::boolean AND coalesce(checkpoints ? $6::text, false));
