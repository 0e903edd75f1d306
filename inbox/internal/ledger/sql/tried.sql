-- Store the outcome of dry run $1. If the operator's command has removed the row, nothing changes.
--
-- Locks   its row.
-- Index   trial_pkey (id).
-- Called  by Claims.Tried.
UPDATE postroom.dry_run SET outcome = $2::jsonb WHERE id = $1;
