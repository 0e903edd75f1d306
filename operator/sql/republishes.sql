-- At most $4 republishes that match all conditions, the newest first. $1 is the id. $2 is the
-- digest of a running republish. The ids must be below $3. A parameter that is NULL is no
-- condition.
--
-- Locks   none.
-- Index   republish_pkey (id), republish_digest.
-- Order   by id, descending.
-- Called  by Store.Republishes, Store.FindRepublish and Store.Republish.
SELECT id, kind, created_at, actor, reason, since, until, types, keys, lo, hi, rate, state, events, published, skipped, held, ended_at
FROM postroom.republish
WHERE ($1::bigint IS NULL OR id = $1)
  AND ($2::text IS NULL OR digest = $2 AND state = 'running')
  AND ($3::bigint IS NULL OR id < $3)
ORDER BY id DESC
LIMIT $4;
