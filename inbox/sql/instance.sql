-- Who this Postroom is.
--
-- Locks   none.
-- Index   none; one row.
-- Called  by Inbox.Check and Inbox.Run.
SELECT id::text
FROM postroom.instance;
