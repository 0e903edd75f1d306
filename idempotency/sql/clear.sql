-- Remove the row of key $3 of principal $2 in scope $1, if its answer has expired, its attempt
-- failed, or its claim ran out. If the holder of the claim has stored an answer, renewed the claim
-- or recorded a step since the row was read, the row stays, and the insert after this statement
-- fails. No other attempt can have claimed the row since then: a claim needs the operation's lock,
-- and this transaction has that lock. $4 is the latest time that the caller believes, as in look.sql.
--
-- Locks   the row.
-- Index   the primary key.
-- Called  by tx.finish, before store.sql.
DELETE FROM postroom.idempotency
--guard:clear-has-the-caller 2 true
WHERE scope = $1 AND principal = $2 AND key = $3
  --guard:clear-leaves-a-late-answer true
  AND (expires_at <= least(clock_timestamp(), $4::timestamptz) OR state <> 'complete')
  --guard:clear-leaves-a-late-step true
  AND (expires_at <= least(clock_timestamp(), $4::timestamptz) OR coalesce(checkpoints IN ('{}', '{"": {}}'), true))
  --guard:clear-leaves-a-claim true
  AND (state <> 'pending' OR lease_until <= least(clock_timestamp(), $4::timestamptz));
