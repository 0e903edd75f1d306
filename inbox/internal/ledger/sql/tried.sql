-- Store the outcome of dry run $1. The process of the operator may have ended meanwhile.
--
-- Locks   its row.
-- Index   trial_pkey (id).
-- Called  by Claims.Tried.
UPDATE postroom.trial SET outcome = $2::jsonb WHERE id = $1;
