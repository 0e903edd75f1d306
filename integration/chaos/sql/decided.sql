-- Counts the events that are decided at each handler: they took effect there, or are
-- dead, or were discarded.
--
-- Locks: none. Reads everything. Called by: drained.
SELECT handler, count(*)::int
  FROM (SELECT handler, event FROM effect UNION
        SELECT handler, event_id FROM postroom.held WHERE dead_at IS NOT NULL UNION
        SELECT handler, event_id FROM postroom.archive) AS decided
 GROUP BY handler;
