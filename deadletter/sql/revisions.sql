-- What the event with the id $1 was before it was edited.
--
-- Locks   none.
-- Index   revision_pkey (held, revision).
-- Called  by Store.Get.
SELECT r.revision, r.replaced_at, coalesce(a.actor, ''), coalesce(a.reason, ''), r.content_type, r.headers, r.data
FROM postroom.revision r
LEFT JOIN postroom.audit a ON a.id = r.audit
WHERE r.held = $1
ORDER BY r.revision;
