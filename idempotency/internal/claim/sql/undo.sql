-- Record that calls of step $6 that were begun did not happen, under the claim of owner $4
-- with fence $5, and that $7 calls of it are still unanswered. It may be repeated: only the
-- holder of the claim begins calls, so it knows that number. No row means that another attempt
-- has the claim.
--
-- Locks   the row.
-- Index   the primary key.
-- Called  by Claim.Undo.
UPDATE postroom.idempotency
SET checkpoints = CASE WHEN $7::int > 0
    THEN jsonb_set(checkpoints, ARRAY['', $6::text, 'calls'], to_jsonb($7::int))
    ELSE checkpoints #- ARRAY['', $6::text] END
WHERE scope = $1 AND principal = $2 AND key = $3 AND owner = $4::uuid AND fence = $5 AND state = 'pending';
