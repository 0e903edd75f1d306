-- The living processes, with their handlers. For each handler, two times in seconds: how long the
-- process needs the handler's inbox rows, and up to which age of an event the process runs the
-- event.
--
-- Locks   none.
-- Index   none; there are as many rows as processes.
-- Order   by name; the handlers of a process are in the order of its row.
-- Called  by examination.loadProcesses.
SELECT name, handlers,
       ARRAY(SELECT extract(epoch FROM h.kept)::float8
             FROM unnest(handlers, dedupe_windows) WITH ORDINALITY AS h (handler, kept, n) ORDER BY h.n) AS windows,
       ARRAY(SELECT extract(epoch FROM h.age)::float8
             FROM unnest(handlers, max_event_ages) WITH ORDINALITY AS h (handler, age, n) ORDER BY h.n) AS ages
FROM postroom.node
WHERE seen_at > now() - interval '1 minute'
ORDER BY name;
