-- Give the dead event with id $1 the body $2, the content type $3 and the headers $4, as its next
-- revision. Keep the previous revision, with audit row $5, which says why. The statement returns
-- the number of the new revision.
--
-- Locks   the held row.
-- Index   held_pkey (id).
-- Called  by Store.Edit, after lock_dead.sql.
WITH kept AS (
    INSERT INTO postroom.revision (held, revision, audit, event_id, content_type, headers, data, raw_headers)
    SELECT id, revision, $5, event_id, content_type, headers, data, raw_headers FROM postroom.held WHERE id = $1
)
UPDATE postroom.held
SET data = $2, content_type = $3, headers = $4::jsonb, revision = revision + 1
WHERE id = $1 AND dead_at IS NOT NULL
RETURNING revision;
