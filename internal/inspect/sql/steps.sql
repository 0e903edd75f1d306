-- The steps of the external handlers $1 for an event. $2 has the dedupe key of the event for each
-- of these handlers. The statement leaves out the results of the steps, because they come from a
-- vendor.
--
-- Locks   none.
-- Index   receipt's primary key.
-- Order   by start.
-- Called  by Inspector.Event.
SELECT r.handler::text, r.step, r.revision, r.key, r.unanswered, r.started_at, r.done_at
FROM unnest($1::text[], $2::text[]) AS a (handler, dedupe_key)
CROSS JOIN LATERAL (SELECT * FROM postroom.receipt WHERE receipt.handler = a.handler AND receipt.dedupe_key = a.dedupe_key LIMIT 100) r
ORDER BY r.started_at, r.handler, r.step, r.revision;
