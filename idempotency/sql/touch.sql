-- The guard has just repeated the answer for key $3 of principal $2 in scope $1. Keep the answer
-- for at least $4 from now.
--
-- Locks   the row.
-- Index   the primary key.
-- Called  by store.touch, if the TTL of the answer counts from its last use.
UPDATE postroom.idempotency
--guard:a-replay-shortens-nothing 2 = @2
SET expires_at = greatest(expires_at, clock_timestamp() + $4::interval)
--guard:a-replay-revives-nothing 5 true
--guard:a-replay-leaves-claims 4 true
WHERE scope = $1 AND principal = $2 AND key = $3 AND state = 'complete' AND expires_at > clock_timestamp();
