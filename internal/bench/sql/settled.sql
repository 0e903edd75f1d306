-- Whether nothing is owed.
--
-- Locks   none.
-- Called  by backlog.settled.
SELECT NOT EXISTS (SELECT FROM postroom.held);
