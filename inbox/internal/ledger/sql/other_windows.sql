-- Return each handler of $1 that another living process runs with a dedupe window that is not the
-- one in $2. The row has the handler, the name of one such process, and the window of that other
-- process in seconds.
--
-- Locks   none.
-- Index   none; there are as many rows as processes.
-- Order   by handler.
-- Called  by Upkeep.OtherWindows.
SELECT DISTINCT ON (own.handler) own.handler, node.name, extract(epoch FROM h.kept)::float8
FROM unnest($1::text[], $2::interval[]) AS own (handler, kept)
JOIN postroom.node ON own.handler = ANY (node.handlers) AND node.seen_at > now() - interval '1 minute'
CROSS JOIN LATERAL unnest(node.handlers, node.dedupe_windows) AS h (handler, kept)
WHERE h.handler = own.handler AND h.kept <> own.kept
ORDER BY own.handler, node.name;
