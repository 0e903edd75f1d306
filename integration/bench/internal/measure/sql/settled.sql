-- Whether there are $1 effects, and exactly $2 events are held.
--
-- Locks   none.
-- Called  by backlog.settled.
SELECT (SELECT count(*) FROM postroom.effects) = $1 AND (SELECT count(*) FROM postroom.held) = $2;
