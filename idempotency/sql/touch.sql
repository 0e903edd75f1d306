-- Keep an answer that was just repeated for $4 longer.
--
-- Locks   the row.
-- Index   the primary key.
-- Called  by store.touch, if the answer's time counts from its last use.
UPDATE postroom.idempotency
SET expires_at = greatest(expires_at, clock_timestamp() + $4::interval)
WHERE scope = $1 AND principal = $2 AND key = $3 AND state = 'complete' AND expires_at > clock_timestamp();
