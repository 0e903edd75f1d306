-- Remove the row of key $3 of principal $2 in scope $1, which no longer counts or
-- whose claim ran out, as it was seen with fence $4. Where somebody has claimed it
-- meanwhile it stays, and the insert after it fails.
--
-- Locks   the row.
-- Index   the primary key.
-- Called  by Guard.finish, in front of store.sql.
DELETE FROM postroom.idempotency
WHERE scope = $1 AND principal = $2 AND key = $3 AND fence = $4
  AND (expires_at <= clock_timestamp() OR state <> 'complete')
  AND (state <> 'pending' OR lease_until <= clock_timestamp());
