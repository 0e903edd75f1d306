-- Give back the claim on the held event $1 with epoch $2. The attempt does not count, because the
-- event did not run, or something else ended its run. If the statement is repeated because its
-- answer was lost, it changes nothing more.
--
-- Locks   the held row.
-- Index   held_pkey (id).
-- Called  by Claims.Release.
UPDATE postroom.held
SET next_at = now(), attempts = attempts - 1, claimed_by = NULL
WHERE id = $1 AND epoch = $2 AND claimed_by IS NOT NULL;
