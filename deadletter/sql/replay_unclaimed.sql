-- The events that replay $1 released and that no process runs: no process has begun them, a process
-- has given them back, or the claim of a process has run out. Outgoing events are left out, because
-- the relay may be publishing them. replay_take_back.sql checks again whether an event began or
-- died meanwhile, so this statement need not lock the events.
--
-- Locks   none. The caller has already locked the replay.
-- Index   replay_event_open (replay, n), held_pkey (id).
-- Called  by replayStep.stopReleasing and replayStep.advance.
SELECT held.id
FROM postroom.replay_event i
--guard:a-cancel-leaves-what-may-be-published 3 true
JOIN postroom.held ON held.id = i.held AND held.dead_at IS NULL AND held.handler <> 'outbox'
    --guard:what-ran-out-is-taken-back 2 false
    AND (held.claimed_by IS NULL OR held.next_at <= clock_timestamp())
--guard:a-cancel-leaves-what-has-ended 2 true
--guard:a-cancel-leaves-what-it-did-not-release 3 true
WHERE i.replay = $1 AND i.outcome IS NULL AND i.released_at IS NOT NULL;
