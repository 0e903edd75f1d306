-- The versions of saga $1 with instances that have not ended, each with the key of one of these
-- instances. The result has only versions that are below $2 and not in $3.
--
-- Locks   none.
-- Index   saga_version (name, version): two searches for each version.
-- Order   by version.
-- Called  by Saga.check.
WITH RECURSIVE versions AS (
    SELECT min(version) AS version FROM postroom.saga WHERE name = $1 AND ended_at IS NULL
    UNION ALL
    SELECT (SELECT min(s.version) FROM postroom.saga s WHERE s.name = $1 AND s.ended_at IS NULL AND s.version > v.version)
    FROM versions v
    WHERE v.version < $2
)
SELECT v.version, s.key
FROM versions v
CROSS JOIN LATERAL (
    SELECT key FROM postroom.saga WHERE name = $1 AND version = v.version AND ended_at IS NULL LIMIT 1
) s
WHERE v.version < $2 AND v.version <> ALL ($3::int[])
ORDER BY v.version
