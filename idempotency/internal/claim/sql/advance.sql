-- Record that phase or call $6 is done, with its result $7. For a phase, the statement runs in the
-- transaction of the phase. For a call, it also removes the record that the call began. If $8 is
-- true (for a phase), $6 must have no record yet, because a phase commits once. The result of a
-- call may be recorded again, because the database may not have answered the first time. If the
-- statement changes no row, owner $4 no longer has the claim with fence $5, or the phase has a
-- record already. In both cases, the transaction must not commit.
--
-- Locks   the row.
-- Index   the primary key.
-- Called  by Claim.Record.
UPDATE postroom.idempotency
--guard:a-done-call-is-not-begun 2.2.1.1 = @1
SET point = $6::text, checkpoints = coalesce(checkpoints #- ARRAY['', $6::text], '{}') || pg_catalog.jsonb_build_object($6::text, $7::jsonb)
--guard:advance-has-owner-and-fence 4,5,6 true
WHERE scope = $1 AND principal = $2 AND key = $3 AND owner = $4::uuid AND fence = $5 AND state = 'pending'
  --guard:a-phase-is-committed-once true
  AND NOT ($8::boolean AND coalesce(checkpoints ? $6::text, false));
