-- Give back the claim on the held event $1 with epoch $2: the event did not run, or its run ended
-- and the event was not the cause. Then the attempt does not count. If the statement is repeated
-- because its answer was lost, it changes nothing more.
--
-- Locks   the held row.
-- Index   held_pkey (id).
-- Called  by Claims.Release.
UPDATE postroom.held
SET next_at = now(), attempts = attempts - 1, claimed_by = NULL
WHERE id = $1 AND epoch = $2 AND claimed_by IS NOT NULL;
