-- Remove the row of key $3 of principal $2 in scope $1, which has expired or whose claim ran
-- out. If its holder has answered, renewed the claim or recorded a step since the row was read,
-- the row stays, and the insert after this statement fails. No other attempt can have claimed
-- the row, because a claim needs the operation's lock, which this transaction has.
--
-- Locks   the row.
-- Index   the primary key.
-- Called  by tx.finish, in front of store.sql.
DELETE FROM postroom.idempotency
WHERE scope = $1 AND principal = $2 AND key = $3
  AND (expires_at <= clock_timestamp() OR state <> 'complete')
  AND (expires_at <= clock_timestamp() OR coalesce(checkpoints IN ('{}', '{"": {}}'), true))
  AND (state <> 'pending' OR lease_until <= clock_timestamp());
