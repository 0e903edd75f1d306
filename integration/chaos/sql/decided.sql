-- Counts the events that each handler has decided: they took effect, are dead, or were discarded or
-- cancelled. Effects of the rig's own events do not count, because the caller compares the counts
-- with the number of the producers' events.
--
-- $1: the key of the rig's own events
--
-- Locks: none. Reads everything. Called by: drained.
SELECT handler, count(*)::int
  FROM (SELECT handler, event FROM effect WHERE key <> $1 UNION
        SELECT handler, event_id FROM postroom.held WHERE dead_at IS NOT NULL UNION
        SELECT handler, event_id FROM postroom.archive) AS decided
 GROUP BY handler;
