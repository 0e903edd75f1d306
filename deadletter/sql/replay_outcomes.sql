-- Record the outcomes of the events that replay $1 released. An event that is no longer held has
-- succeeded, unless it was discarded. An event that is dead has failed. The statement returns how
-- many events have each outcome, how many are open, and the events that failed and have a key that
-- only this replay uses. "OFFSET 0" makes the planner look up each event in archive; a join would
-- read all of archive.
--
-- Locks   the rows of replay_event.
-- Index   replay_event_open (replay, n), held_pkey (id), archive_pkey (id).
-- Called  by replayStep.recordOutcomes, after replay_lock.sql.
WITH open AS (
    SELECT i.n, i.held, i.chain,
           CASE WHEN held.id IS NULL THEN
                    CASE WHEN EXISTS (SELECT FROM postroom.archive WHERE archive.id = i.held OFFSET 0) THEN 'discarded' ELSE 'succeeded' END
                WHEN held.dead_at IS NOT NULL THEN 'failed' END AS outcome
    FROM postroom.replay_event i
    LEFT JOIN postroom.held ON held.id = i.held
    WHERE i.replay = $1 AND i.outcome IS NULL AND i.released_at IS NOT NULL
), ended AS (
    UPDATE postroom.replay_event i SET outcome = open.outcome, ended_at = now()
    FROM open
    WHERE i.replay = $1 AND i.n = open.n AND i.outcome IS NULL AND i.released_at IS NOT NULL AND open.outcome IS NOT NULL
)
SELECT count(*) FILTER (WHERE outcome = 'succeeded'), count(*) FILTER (WHERE outcome = 'failed'),
       count(*) FILTER (WHERE outcome = 'discarded'), count(*) FILTER (WHERE outcome IS NULL),
       coalesce(pg_catalog.array_agg(held) FILTER (WHERE outcome = 'failed' AND chain IS NOT NULL), '{}')
FROM open;
