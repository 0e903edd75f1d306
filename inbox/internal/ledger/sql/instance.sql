-- The identity of this Postroom.
--
-- Locks   none.
-- Index   none, there is one row.
-- Called  by Inbox.missingConsumers.
SELECT id::text FROM postroom.instance;
