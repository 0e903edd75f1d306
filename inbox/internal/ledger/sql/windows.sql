-- Record how long the inbox rows of each handler are kept: the longest time that any of its
-- processes asks for. A process that has given no sign of life for a while still counts. A handler
-- that no process runs keeps its time.
--
-- Locks   the rows of dedupe_window that change.
-- Index   dedupe_window's primary key; node is read, it has as many rows as processes.
-- Called  by Upkeep.Sweep, after lock_nodes.sql.
INSERT INTO postroom.dedupe_window AS w (handler, kept)
--guard:the-longer-window-counts = @1, min(@2.1)
SELECT h.handler, max(h.kept)
FROM postroom.node
--guard:a-stalled-process-needs-its-rows do @ WHERE seen_at > now() - interval '1 minute'
CROSS JOIN LATERAL unnest(node.handlers, node.dedupe_windows) AS h (handler, kept)
GROUP BY h.handler
ON CONFLICT (handler) DO UPDATE SET kept = excluded.kept WHERE w.kept <> excluded.kept;
