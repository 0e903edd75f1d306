-- Make the events $2 of replay $1 dead again, as they were before it released them, if no
-- process runs them and they have not died since. It returns how many there are. The items
-- have not changed since they were read, because only a process that has locked the replay
-- changes them.
--
-- Locks   the held rows and the items; the replay and the keys are locked before.
-- Index   held_pkey (id), job_item's unique (job, held).
-- Called  by replayStep.takeBack, after keys_lock.sql.
WITH withdrawn AS (
    UPDATE postroom.held
    SET dead_at = i.dead_at, next_at = NULL, key = CASE WHEN i.chain IS NULL THEN held.key END
    FROM postroom.job_item i
    WHERE held.id = ANY ($2::bigint[]) AND held.claimed_by IS NULL AND held.dead_at IS NULL
      AND i.job = $1 AND i.held = held.id
    RETURNING held.id
), noted AS (
    UPDATE postroom.job_item i SET outcome = 'withdrawn', ended_at = now()
    FROM withdrawn
    WHERE i.job = $1 AND i.held = withdrawn.id
    RETURNING 1
)
SELECT count(*) FROM noted;
