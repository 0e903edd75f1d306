-- Some events of replay $1 were not released, or were taken back. Put these events into the replay
-- again, if they are still dead and in no other running replay. The statement returns their number.
--
-- Locks   the held rows and the rows of replay_event. The caller has already locked the replay.
-- Index   replay_event's primary key, held_pkey (id).
-- Called  by Store.ResumeReplay, after replay_serialize.sql and replay_lock.sql.
WITH again AS (
    UPDATE postroom.held SET replay = $1
    FROM postroom.replay_event i
    --guard:what-was-tried-is-not-taken-up 2 true
    --guard:what-is-not-dead-is-not-taken-up 4 true
    WHERE i.replay = $1 AND i.outcome = 'withdrawn' AND held.id = i.held AND held.dead_at IS NOT NULL
      --guard:what-another-replay-has-is-not-taken-up true
      AND NOT EXISTS (SELECT FROM postroom.replay j WHERE j.id = held.replay AND j.state = 'running')
    RETURNING held.id, held.dead_at
), noted AS (
    UPDATE postroom.replay_event i SET outcome = NULL, ended_at = NULL, released_at = NULL, dead_at = again.dead_at
    FROM again
    WHERE i.replay = $1 AND i.held = again.id
    RETURNING 1
)
SELECT count(*) FROM noted;
