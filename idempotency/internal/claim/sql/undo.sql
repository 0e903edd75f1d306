-- Record, under the claim of owner $4 with fence $5, that calls of step $6 began but did not
-- happen. $7 calls of the step still have no known outcome. The statement may be repeated, because
-- $7 is the new number of these calls, and not a difference. The holder knows this number, because
-- only the holder begins calls. If the statement changes no row, owner $4 has lost the claim.
--
-- Locks   the row.
-- Index   the primary key.
-- Called  by Claim.Undo.
UPDATE postroom.idempotency
--guard:undo-leaves-other-calls 2.1 false
SET checkpoints = CASE WHEN $7::int > 0
    --guard:what-did-not-happen-is-counted-back-once = checkpoints #- ARRAY['', $6::text]
    THEN jsonb_set(checkpoints, ARRAY['', $6::text, 'calls'], pg_catalog.to_jsonb($7::int))
    ELSE checkpoints #- ARRAY['', $6::text] END
--guard:undo-has-owner-and-fence 4,5,6 true
WHERE scope = $1 AND principal = $2 AND key = $3 AND owner = $4::uuid AND fence = $5 AND state = 'pending';
