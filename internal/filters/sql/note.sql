-- Note that an event of type $3 came to filter $2 of kind $1. $4 says whether the filter took the
-- event, and $5 whether an endpoint could get events of this type. If another process is writing
-- the row, nothing changes.
--
-- Locks   the filter's row, until the statement ends; skips a row that is locked.
-- Index   filter's primary key.
-- Called  by Filter.Note.
WITH own AS (
    SELECT kind, name FROM postroom.filter WHERE kind = $1::text AND name = $2::text FOR UPDATE SKIP LOCKED
), noted AS (
    UPDATE postroom.filter AS f
    SET taken_at = CASE WHEN $4::boolean THEN now() ELSE f.taken_at END,
        passed_at = CASE WHEN $4::boolean THEN f.passed_at ELSE now() END,
        passed = CASE WHEN $4::boolean THEN f.passed ELSE $3::text END,
        types = CASE WHEN $5::boolean AND NOT $3::text = ANY (f.types) AND pg_catalog.cardinality(f.types) < 100 THEN pg_catalog.array_append(f.types, $3::text) ELSE f.types END
    FROM own
    WHERE f.kind = own.kind AND f.name = own.name
)
INSERT INTO postroom.filter (kind, name, taken_at, passed_at, passed, types)
SELECT $1, $2, CASE WHEN $4 THEN now() END, CASE WHEN NOT $4 THEN now() END, CASE WHEN NOT $4 THEN $3 END, CASE WHEN $5 THEN ARRAY[$3] ELSE '{}' END
WHERE NOT EXISTS (SELECT FROM postroom.filter WHERE kind = $1 AND name = $2)
ON CONFLICT (kind, name) DO NOTHING;
