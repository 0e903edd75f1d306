-- Remove the key that the dead events $2 had in replay $1, so that no event waits behind them.
--
-- Locks   the held rows.
-- Index   held_pkey (id), job_item's unique (job, held).
-- Called  by replayStep.recordOutcomes, after replay_outcomes.sql and replay_stuck.sql.
UPDATE postroom.held SET key = NULL
FROM postroom.job_item i
WHERE i.job = $1 AND i.held = held.id AND held.id = ANY ($2::bigint[]) AND held.key = i.chain AND held.dead_at IS NOT NULL;
