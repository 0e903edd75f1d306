-- Whether $1 events have their effects, and nothing is owed but $2 events.
--
-- Locks   none.
-- Called  by backlog.settled.
SELECT (SELECT count(*) FROM postroom.effects) = $1 AND (SELECT count(*) FROM postroom.held) = $2;
