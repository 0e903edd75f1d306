-- Return the handlers of $1 that an operator has paused.
--
-- Locks   none.
-- Index   pause_pkey (handler).
-- Called  by Upkeep.Paused.
SELECT handler FROM postroom.pause WHERE handler = ANY ($1) AND (until IS NULL OR until > now());
