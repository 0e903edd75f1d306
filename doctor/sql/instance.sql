-- The identity of this Postroom.
--
-- Locks   none.
-- Index   none; one row.
-- Called  by examination.loadSubscriptions.
SELECT id::text FROM postroom.instance;
