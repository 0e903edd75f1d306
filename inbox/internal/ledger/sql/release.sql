-- Give back the claim on the held event $1 with epoch $2: the event was not run, or its run
-- ended without a fault of its own. This counts no attempt. It is done once: if the answer
-- was lost, the statement is sent again.
--
-- Locks   the held row.
-- Index   held_pkey (id).
-- Called  by Claims.Release.
UPDATE postroom.held
SET next_at = now(), attempts = attempts - 1, claimed_by = NULL
WHERE id = $1 AND epoch = $2 AND claimed_by IS NOT NULL;
