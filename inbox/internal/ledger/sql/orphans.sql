-- Give back what process $1 claimed for handlers $2 and does not know of: the
-- answer to its claim was lost. What it does know of is $3. That is no attempt.
--
-- Locks   the held rows.
-- Index   held_alone (handler, next_at).
-- Called  by Claims.Orphans.
UPDATE postroom.held
SET next_at = now(), attempts = attempts - 1, claimed_by = NULL
WHERE handler = ANY ($2::text[]) AND claimed_by = $1 AND id <> ALL ($3::bigint[]);
