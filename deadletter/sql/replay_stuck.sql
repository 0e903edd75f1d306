-- The events that replay $1 released and that wait behind a dead event of their key.
--
-- Locks   none. The caller has already locked the replay.
-- Index   replay_event_open (replay, n), held_pkey (id), held_chain_pos (handler, chain, pos).
-- Called  by replayStep.recordOutcomes.
SELECT held.id
FROM postroom.replay_event i
JOIN postroom.held ON held.id = i.held AND held.chain IS NOT NULL AND held.next_at IS NULL AND held.dead_at IS NULL
WHERE i.replay = $1 AND i.outcome IS NULL AND i.released_at IS NOT NULL
  AND (SELECT o.dead_at IS NOT NULL FROM postroom.held o
       WHERE o.handler = held.handler AND o.chain = held.chain
       ORDER BY o.pos
       LIMIT 1);
