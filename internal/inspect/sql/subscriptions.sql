-- The stream, types and subjects of each handler. For an ordered handler, also the process that
-- reads the stream.
--
-- Locks   none.
-- Index   subscription's primary key.
-- Order   by handler.
-- Called  by Inspector.Status, Inspector.Handlers and Inspector.Event.
SELECT s.handler, s.stream, s.stream_created, coalesce(s.types, '{}'), s.subjects, s.floor, s.floor_at, s.ordered,
       coalesce(s.reader, ''), s.reader_until, coalesce(s.reader_until > clock_timestamp(), false) AS read, s.epoch, s.takeovers,
       i.id::text AS instance, s.created_at < now() - interval '1 day' AS is_old
FROM postroom.subscription s
CROSS JOIN postroom.instance i
ORDER BY s.handler;
