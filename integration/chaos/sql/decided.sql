-- Counts the events that are decided at each handler: they took effect there, or are
-- dead, or were discarded. The rig's own events do not count: their progress is not the
-- progress of the producers' events.
--
-- $1: the key of the rig's own events
--
-- Locks: none. Reads everything. Called by: drained.
SELECT handler, count(*)::int
  FROM (SELECT handler, event FROM effect WHERE key <> $1 UNION
        SELECT handler, event_id FROM postroom.held WHERE dead_at IS NOT NULL UNION
        SELECT handler, event_id FROM postroom.archive) AS decided
 GROUP BY handler;
