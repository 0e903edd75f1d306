-- Remove from the dead events $2 the key that only replay $1 uses, so that no event waits behind
-- them.
--
-- Locks   the held rows.
-- Index   held_pkey (id), replay_event's unique (replay, held).
-- Called  by replayStep.recordOutcomes, after replay_outcomes.sql and replay_stuck.sql.
UPDATE postroom.held SET chain = NULL
FROM postroom.replay_event i
WHERE i.replay = $1 AND i.held = held.id AND held.id = ANY ($2::bigint[]) AND held.chain = i.chain AND held.dead_at IS NOT NULL;
