-- Give back the claims of process $1 for handlers $2, except the claims $3. The process knows only
-- of the claims $3, because the answer of a claiming statement was lost. The attempts of the claims
-- that are given back do not count.
--
-- Locks   the held rows.
-- Index   held_alone (handler, next_at).
-- Called  by Claims.Orphans.
UPDATE postroom.held
SET next_at = now(), attempts = attempts - 1, claimed_by = NULL
WHERE handler = ANY ($2::text[]) AND claimed_by = $1 AND id <> ALL ($3::bigint[]);
