-- If the event with id $1 is dead, lock it until the transaction ends. The statement returns the
-- event, its steps that began and are not recorded as done, and its steps that are done.
--
-- Locks   the held row.
-- Index   held_pkey (id), receipt's primary key.
-- Called  by Store.Edit and Store.Resolve.
SELECT h.handler, h.dedupe_key, h.source, h.event_id, h.revision, h.content_type, h.headers::text, h.raw_headers IS NOT NULL,
       coalesce((SELECT pg_catalog.array_agg(r.step ORDER BY r.step) FROM postroom.receipt r
                 WHERE r.handler = h.handler AND r.dedupe_key = h.dedupe_key AND r.done_at IS NULL), '{}'),
       coalesce((SELECT pg_catalog.array_agg(DISTINCT r.step) FROM postroom.receipt r
                 WHERE r.handler = h.handler AND r.dedupe_key = h.dedupe_key AND r.done_at IS NOT NULL), '{}')
FROM postroom.held h
--guard:only-what-is-dead-is-edited 2 true
WHERE h.id = $1 AND h.dead_at IS NOT NULL
FOR UPDATE;
