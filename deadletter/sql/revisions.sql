-- The earlier revisions of the event with id $1.
--
-- Locks   none.
-- Index   revision_pkey (held, revision).
-- Called  by Store.Get.
SELECT r.revision, r.replaced_at, coalesce(a.actor, ''), coalesce(a.reason, ''), r.content_type, r.headers, r.data
FROM postroom.revision r
LEFT JOIN postroom.audit a ON a.id = r.audit
WHERE r.held = $1
ORDER BY r.revision;
