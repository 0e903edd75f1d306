-- Remove the revisions that were replaced before $1, if their event is no longer in held or archive:
-- the event was edited, and after that it took effect. The statement returns what export.sql
-- returns: the properties of the event, and its revisions.
--
-- Locks   the removed rows.
-- Index   none of revision, which has few rows; held_pkey (id), archive_pkey (id).
-- Called  by Store.Purge.
WITH gone AS (
    DELETE FROM postroom.revision r
    --guard:purge-keeps-young-revisions true
    WHERE r.replaced_at < $1
      --guard:purge-keeps-revisions-of-what-is-held true
      AND NOT EXISTS (SELECT FROM postroom.held WHERE held.id = r.held)
      --guard:purge-keeps-revisions-of-what-is-archived true
      AND NOT EXISTS (SELECT FROM postroom.archive WHERE archive.id = r.held)
    RETURNING r.*
)
SELECT pg_catalog.jsonb_build_object('id', r.held, 'event_id', r.event_id) AS properties, NULL::bytea AS data, NULL::bytea AS raw_headers,
       pg_catalog.array_agg(pg_catalog.to_jsonb(r) - 'held' - 'event_id' - 'data' - 'raw_headers' ORDER BY r.revision),
       pg_catalog.array_agg(r.data ORDER BY r.revision), pg_catalog.array_agg(r.raw_headers ORDER BY r.revision)
FROM gone r
GROUP BY r.held, r.event_id
ORDER BY r.held;
