-- Handler $1 paused because nearly all events failed. Give back the attempts that events lost
-- before the pause: $2 dedupe keys   $3 the number of attempts for each. Events that run or are
-- dead get no attempts back. The statement returns the events that got attempts back.
--
-- Locks   the held rows.
-- Index   held_owed (handler, dedupe_key).
-- Called  by Claims.GiveBack.
UPDATE postroom.held
SET attempts = greatest(attempts - back.n, 0)
FROM unnest($2::text[], $3::int[]) AS back (dedupe_key, n)
WHERE held.handler = $1 AND held.dedupe_key = back.dedupe_key AND claimed_by IS NULL AND dead_at IS NULL
RETURNING held.dedupe_key;
