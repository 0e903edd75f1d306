-- Stores the new values of instance $2 of saga $1, which this transaction has locked. $8 says
-- whether the instance begins to wait for a step now. $11 is a new note, or NULL. $12 says whether
-- the instance has ended. $13 is the id of another saga's Undo, or NULL. $14 is how long the
-- definition lets an instance wait.
--
-- Locks   the row, which is locked already.
-- Index   the primary key.
-- Called  by table.save.
UPDATE postroom.saga
SET state = $3::text, step = $4, run = $5, revision = $6, data = $7::bytea,
    waits_since = CASE WHEN $8 THEN now() ELSE waits_since END,
    waits_hour = CASE WHEN $8 THEN pg_catalog.date_bin('1 hour', coalesce(
            --guard:stuck-begins-after-the-deadline = CASE WHEN $14::interval IS NULL THEN $9::timestamptz END
            $9::timestamptz + interval '5 minutes' - $14::interval,
            now()), 'epoch') ELSE waits_hour END,
    deadline = $9, alarm_at = $10, note = coalesce($11, note), undo_id = $13,
    ended_at = CASE WHEN $12 THEN coalesce(ended_at, now()) END
WHERE name = $1::text AND key = $2::text
