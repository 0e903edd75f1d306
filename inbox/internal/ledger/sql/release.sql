-- Give back the claim on the held event $1 with epoch $2. The event is due $3 from now. The attempt
-- does not count, because the event did not run, or its run ended for a reason outside the event. If
-- the statement is repeated because its answer was lost, it changes nothing the second time.
--
-- Locks   the held row.
-- Index   held_pkey (id).
-- Called  by Claims.Release and Claims.Orphans.
UPDATE postroom.held
SET next_at = now() + $3::interval, attempts = attempts - 1, claimed_by = NULL
--guard:a-claim-is-given-back-by-its-owner 2 true
WHERE id = $1 AND epoch = $2 AND claimed_by IS NOT NULL;
