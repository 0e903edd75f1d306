-- Give the held event $1 back, as whoever claimed it with epoch $2: it was not
-- run, or what ended it was no fault of its own. That is no attempt. Once: it is sent
-- again where the answer was lost.
--
-- Locks   the held row.
-- Index   held_pkey (id).
-- Called  by Claims.Release.
UPDATE postroom.held
SET next_at = now(), attempts = attempts - 1, claimed_by = NULL
WHERE id = $1 AND epoch = $2 AND claimed_by IS NOT NULL;
