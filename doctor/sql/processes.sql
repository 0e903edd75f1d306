-- The living processes, with for how long each keeps rows of inbox, and for how long it
-- relies on them.
--
-- Locks   none.
-- Index   none; there are as many rows as processes.
-- Order   by name.
-- Called  by examination.loadProcesses.
SELECT name, handlers, extract(epoch FROM ledger)::float8 AS ledger, extract(epoch FROM age_gate)::float8 AS age_gate
FROM postroom.node
WHERE seen_at > now() - interval '1 minute'
ORDER BY name;
