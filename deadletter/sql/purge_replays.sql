-- Remove the replays that ended before $1, and their rows of job_item. Also remove the revisions
-- that were replaced before $1, if their event is no longer in held or archive. The audit keeps all
-- actions.
--
-- Locks   the removed rows.
-- Index   none of job and revision, which have few rows; job_item_pkey (job, n), held_pkey (id), archive_pkey (id).
-- Called  by Store.Purge.
WITH revisions AS (
    DELETE FROM postroom.revision r
    WHERE r.replaced_at < $1
      AND NOT EXISTS (SELECT FROM postroom.held WHERE held.id = r.held)
      AND NOT EXISTS (SELECT FROM postroom.archive WHERE archive.id = r.held)
)
DELETE FROM postroom.job WHERE ended_at < $1;
