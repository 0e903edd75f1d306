-- How many endpoints of webhooks are disabled, and how many enabled endpoints fail. Also which
-- enabled endpoint has failed for the longest time, and since when. The statement reads up to
-- 10,000 endpoints.
--
-- Locks   none.
-- Index   webhook_endpoint_unwell.
-- Called  by endpointNotes.
SELECT count(*) FILTER (WHERE disabled_at IS NOT NULL),
       count(*) FILTER (WHERE disabled_at IS NULL),
       coalesce((pg_catalog.array_agg(id ORDER BY failing_since) FILTER (WHERE disabled_at IS NULL))[1], ''),
       min(failing_since) FILTER (WHERE disabled_at IS NULL)
FROM (
    SELECT id, disabled_at, failing_since
    FROM postroom.webhook_endpoint
    WHERE disabled_at IS NOT NULL OR failing_since IS NOT NULL
    LIMIT 10000
) AS e;
