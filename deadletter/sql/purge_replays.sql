-- Remove replays that ended before $1, with their events, and what events were before
-- $1 that are neither held nor archived any more. What was done stays in the audit.
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
