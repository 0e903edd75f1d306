-- Counts the events that are decided at each handler: they took effect there, or are
-- dead, or were discarded. Those of the rig's own are not among them: that they go all
-- the way is no progress.
--
-- $1: the key of the rig's own events
--
-- Locks: none. Reads everything. Called by: drained.
SELECT handler, count(*)::int
  FROM (SELECT handler, event FROM effect WHERE key <> $1 UNION
        SELECT handler, event_id FROM postroom.held WHERE dead_at IS NOT NULL UNION
        SELECT handler, event_id FROM postroom.archive) AS decided
 GROUP BY handler;
