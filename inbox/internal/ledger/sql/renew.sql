-- Renew the claims on the held events $1, each with its epoch in $2: they end $3 from now. The
-- statement returns the events of which this process still has the claim. The other events are
-- settled, or another process has claimed them. If a row is locked, a transaction is settling the
-- event. The statement does not wait for such a row and does not renew the claim, but returns the
-- event, too.
--
-- Locks   the held rows; skips rows that are locked.
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
