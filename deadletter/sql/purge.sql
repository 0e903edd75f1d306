-- Remove the archived events $1, if they were discarded before $2, and their earlier revisions. An event
-- that was reopened and discarded again meanwhile has a later time.
--
-- Locks   the archived rows and their revisions.
-- Index   archive_pkey (id), revision_pkey (held, revision).
-- Called  by Store.Purge.
WITH gone AS (
    DELETE FROM postroom.archive WHERE id = ANY ($1::bigint[])
    --guard:purge-keeps-what-was-discarded-again = $2::timestamptz IS NOT NULL
    AND discarded_at < $2::timestamptz
    RETURNING id
), revisions AS (
    DELETE FROM postroom.revision USING gone WHERE revision.held = gone.id
)
SELECT count(*) FROM gone;
