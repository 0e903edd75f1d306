-- Record that $7 calls of step $6 that were begun did not happen, under the claim of owner
-- $4 with fence $5. Other calls of the step may still be unanswered. No row means that
-- another attempt has the claim.
--
-- Locks   the row.
-- Index   the primary key.
-- Called  by Claim.Undo.
UPDATE postroom.idempotency
SET checkpoints = CASE WHEN (checkpoints -> '' -> $6::text ->> 'calls')::int > $7::int
    THEN jsonb_set(checkpoints, ARRAY['', $6::text, 'calls'], to_jsonb((checkpoints -> '' -> $6::text ->> 'calls')::int - $7::int))
    ELSE checkpoints #- ARRAY['', $6::text] END
WHERE scope = $1 AND principal = $2 AND key = $3 AND owner = $4::uuid AND fence = $5 AND state = 'pending';
