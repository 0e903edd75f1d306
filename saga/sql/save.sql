-- Stores the new values of instance $2 of saga $1, which this transaction has locked. $8 says
-- whether the instance begins to wait for a step now. $11 is a new note, or NULL. $12 says whether
-- the instance has ended. $13 is the id of another saga's Undo, or NULL. $14 is the revision
-- before. If the row has another one, a Local function of the same turn has changed the row, and the
-- statement changes nothing. The time stuck is the recorded one: this program may be older than the one
-- that made it longer.
--
-- Locks   the row, which is locked already.
-- Index   the primary keys.
-- Called  by table.save.
UPDATE postroom.saga
SET state = $3::text, step = $4, run = $5, revision = $6, data = $7::bytea,
    waits_since = CASE WHEN $8 THEN now() ELSE waits_since END,
    waits_hour = CASE WHEN $8 THEN pg_catalog.date_bin('1 hour', coalesce(
            --guard:stuck-begins-after-the-deadline = $9::timestamptz
            $9::timestamptz + interval '5 minutes' - coalesce((SELECT max(d.stuck) FROM postroom.saga_definition d WHERE d.name = $1::text), '1 hour'),
            now()), 'epoch') ELSE waits_hour END,
    deadline = $9, alarm_at = $10, note = coalesce($11, note), undo_id = $13,
    ended_at = CASE WHEN $12 THEN coalesce(ended_at, now()) END
--guard:a-turn-overwrites-no-other 3 = $14::bigint IS NOT NULL
WHERE name = $1::text AND key = $2::text AND revision = $14
