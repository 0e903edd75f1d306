-- The versions of saga $1, other than $2, that have instances that have not ended, with one of
-- these.
--
-- Locks   none.
-- Index   saga_version (name, version): a probe for each recorded version.
-- Order   by version.
-- Called  by Saga.check.
SELECT d.version, s.key
FROM postroom.saga_definition d
CROSS JOIN LATERAL (
    SELECT key FROM postroom.saga WHERE name = d.name AND version = d.version AND ended_at IS NULL LIMIT 1
) s
WHERE d.name = $1 AND d.version <> ALL ($2::int[])
ORDER BY d.version
