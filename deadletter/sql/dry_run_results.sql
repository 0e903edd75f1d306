-- The dry runs $1 that a process has taken. outcome is NULL if the dry run has not ended.
--
-- Locks   none.
-- Index   trial_pkey (id).
-- Called  by Store.DryRun.
SELECT id, taken_by, outcome FROM postroom.dry_run WHERE id = ANY ($1::bigint[]) AND (outcome IS NOT NULL OR taken_by IS NOT NULL);
