-- Remove the archived events $1 and their earlier revisions.
--
-- Locks   the archived rows and their revisions.
-- Index   archive_pkey (id), revision_pkey (held, revision).
-- Called  by Store.Purge.
WITH gone AS (
    DELETE FROM postroom.archive WHERE id = ANY ($1::bigint[]) RETURNING id
), revisions AS (
    DELETE FROM postroom.revision USING gone WHERE revision.held = gone.id
)
SELECT count(*) FROM gone;
