-- Remove the dry runs $1.
--
-- Locks   their rows.
-- Index   trial_pkey (id).
-- Called  by Store.DryRun.
DELETE FROM postroom.dry_run WHERE id = ANY ($1::bigint[]);
