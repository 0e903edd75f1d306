-- The living processes that do not fit a process which keeps rows of inbox for $1 and relies
-- on them for $2: one of the two would rely on a row that the other has removed.
--
-- Locks   none.
-- Index   none; there are as many rows as processes.
-- Called  by Upkeep.Disagrees.
SELECT name, extract(epoch FROM ledger)::float8, extract(epoch FROM age_gate)::float8
FROM postroom.node
WHERE seen_at > now() - interval '1 minute' AND (ledger <= $2::interval OR age_gate >= $1::interval)
ORDER BY name
LIMIT 1;
