-- Say that process $1 lives, with the name $2 and the handlers $3, which keeps
-- ledger rows for $4 and trusts them for $5. Forget processes that were not
-- seen for an hour. Returns the database's clock, who this Postroom is, and from which
-- time on the ledger has all rows (NULL: none was removed yet).
--
-- Locks   the process's row, and the rows that are removed.
-- Index   the primary key; otherwise none, there are as many rows as processes.
-- Called  by Upkeep.Beat.
WITH forgotten AS (
    DELETE FROM postroom.node WHERE seen_at < now() - interval '1 hour' AND id <> $1
)
INSERT INTO postroom.node (id, name, handlers, ledger, age_gate)
VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (id) DO UPDATE SET seen_at = now()
RETURNING clock_timestamp(), (SELECT id::text FROM postroom.instance), (SELECT expired_before FROM postroom.sweep);
