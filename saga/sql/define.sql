-- Records version $2 of saga $1: its steps $3, the time $4 after which an instance is stuck, and
-- the prefix $5 of the saga's subjects. If the recorded version has more steps, its steps stay.
--
-- Locks   the row.
-- Index   the primary key.
-- Called  by Saga.define.
INSERT INTO postroom.saga_definition AS d (name, version, steps, stuck, prefix)
VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (name, version) DO UPDATE
SET steps = CASE WHEN jsonb_array_length(excluded.steps) >= jsonb_array_length(d.steps) THEN excluded.steps ELSE d.steps END,
    stuck = excluded.stuck, prefix = excluded.prefix
WHERE (d.steps, d.stuck, d.prefix) IS DISTINCT FROM (excluded.steps, excluded.stuck, excluded.prefix)
