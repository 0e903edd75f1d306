-- The sources of the log's events, each once.
--
-- Locks   none.
-- Index   outbox_event (source, event_id), once for each source.
-- Called  by Log.Sources.
WITH RECURSIVE sources AS (
    (SELECT source::text FROM postroom.outbox ORDER BY source LIMIT 1)
    UNION ALL
    SELECT (SELECT o.source::text FROM postroom.outbox o WHERE o.source::text > sources.source ORDER BY o.source LIMIT 1)
    FROM sources
    WHERE sources.source IS NOT NULL
)
SELECT source FROM sources WHERE source IS NOT NULL;
