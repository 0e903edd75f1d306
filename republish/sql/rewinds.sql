-- Rewinds, the last first: with the id $1, or with the wish $2 and running, or before
-- the id $3; $4 at the most. What is NULL does not matter.
--
-- Locks   none.
-- Index   rewind_pkey (id), rewind_wish (wish).
-- Order   by id, descending.
-- Called  by Rewinds.List, Rewinds.Find and Rewinds.Rewind.
SELECT id, kind, created_at, actor, reason, since, until, types, keys, lo, hi, rate, state, events, published, skipped, held, ended_at
FROM postroom.rewind
WHERE ($1::bigint IS NULL OR id = $1)
  AND ($2::text IS NULL OR wish = $2 AND state = 'running')
  AND ($3::bigint IS NULL OR id < $3)
ORDER BY id DESC
LIMIT $4;
