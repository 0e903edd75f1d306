-- The earlier revisions of the event with id $1.
--
-- Locks   none.
-- Index   revision_event (event_id).
-- Order   by held event and revision.
-- Called  by Inspector.Event.
SELECT held, revision, replaced_at, audit, octet_length(data) AS bytes
FROM (SELECT * FROM postroom.revision WHERE event_id = $1::text LIMIT 100) r
ORDER BY held, revision;
