-- Extend the claims on the held events $1, each with its epoch in $2, by $3. It returns the events
-- that this process still has; other events were claimed by another process, or are settled. It
-- does not wait for a locked row, because a transaction is settling that event: the event is
-- returned, too.
--
-- Locks   the held rows; skips those that are locked.
-- Index   held_pkey (id).
-- Called  by Claims.Renew, after plan.sql.
WITH c AS (
    SELECT * FROM unnest($1::bigint[], $2::bigint[]) AS c (id, epoch)
), free AS (
    SELECT held.id
    FROM c
    JOIN postroom.held ON held.id = c.id AND held.epoch = c.epoch AND held.claimed_by IS NOT NULL
    FOR NO KEY UPDATE OF held SKIP LOCKED
), renewed AS (
    UPDATE postroom.held
    SET next_at = now() + $3::interval
    FROM free
    WHERE held.id = free.id
)
SELECT held.id
FROM c
JOIN postroom.held ON held.id = c.id AND held.epoch = c.epoch AND held.claimed_by IS NOT NULL;
