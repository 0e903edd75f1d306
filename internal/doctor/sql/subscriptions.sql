-- For each handler: what it reads, its floor (the sequence up to which all messages are decided),
-- and whether a living process runs it.
--
-- Locks   none.
-- Index   none; there are as many rows as handlers.
-- Order   by handler.
-- Called  by examination.loadSubscriptions.
SELECT s.handler::text, s.stream, s.stream_created, coalesce(s.types, '{}') AS types, s.subjects, s.floor,
       coalesce(s.floor_id, '') AS floor_id, s.floor_stored_at, s.skipped_through,
       s.ordered,
       EXISTS (SELECT FROM postroom.node WHERE s.handler = ANY (handlers) AND seen_at > now() - interval '1 minute') AS lives
FROM postroom.subscription s
ORDER BY s.handler;
