-- Tell what came of dry run $1. Whoever asked may have gone.
--
-- Locks   its row.
-- Index   trial_pkey (id).
-- Called  by Claims.Tried.
UPDATE postroom.trial SET outcome = $2::jsonb WHERE id = $1;
