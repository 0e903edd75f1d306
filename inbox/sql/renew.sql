-- Renew the claims on the held events $1, each made with the epoch in $2, for
-- another $3. What is not returned another process has claimed since, or it is
-- settled.
--
-- Locks   the held rows.
-- Index   held_pkey (id).
-- Called  by renewer.renew, after plan.sql.
UPDATE postroom.held
SET next_at = now() + $3::interval
FROM unnest($1::bigint[], $2::bigint[]) AS c (id, epoch)
WHERE held.id = c.id AND held.epoch = c.epoch AND held.claimed_by IS NOT NULL
RETURNING held.id;
