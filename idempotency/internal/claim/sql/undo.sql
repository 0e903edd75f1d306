-- Record, under the claim of owner $4 with fence $5, that call $7 of step $6 began but did not
-- happen; NULL: that no call of the step happened. If other calls have no known outcome, the record
-- of them stays. The statement may be repeated, or the beginning of $7 may not be recorded: it
-- changes the record only if $7 is the call that began last, and was not taken back. If the
-- statement changes no row, owner $4 has lost the claim.
--
-- Locks   the row.
-- Index   the primary key.
-- Called  by Claim.Undo.
UPDATE postroom.idempotency
SET checkpoints = CASE
    WHEN $7::text IS NULL THEN checkpoints #- ARRAY['', $6::text]
    --guard:what-did-not-happen-is-counted-back-once false
    WHEN coalesce(checkpoints #>> ARRAY['', $6::text, 'call'], '') <> $7::text THEN checkpoints
    --guard:undo-leaves-other-calls false
    WHEN (checkpoints #>> ARRAY['', $6::text, 'calls'])::int > 1
    THEN jsonb_set(checkpoints #- ARRAY['', $6::text, 'call'], ARRAY['', $6::text, 'calls'],
                   pg_catalog.to_jsonb((checkpoints #>> ARRAY['', $6::text, 'calls'])::int - 1))
    ELSE checkpoints #- ARRAY['', $6::text] END
--guard:undo-has-owner-and-fence 4,5,6 true
WHERE scope = $1 AND principal = $2 AND key = $3 AND owner = $4::uuid AND fence = $5 AND state = 'pending';
