-- Remove the replays that ended before $1, and their rows of replay_event. The audit keeps all actions.
--
-- Locks   the removed rows.
-- Index   none of replay, which has few rows; replay_event_pkey (replay, n).
-- Called  by Store.Purge.

--guard:purge-keeps-young-replays = ended_at IS NOT NULL AND $1::timestamptz IS NOT NULL
DELETE FROM postroom.replay WHERE ended_at < $1;
