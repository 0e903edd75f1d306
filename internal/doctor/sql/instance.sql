-- The identity of this Postroom.
--
-- Locks   none.
-- Index   none; one row.
-- Called  by examination.loadSubscriptions and checkStrayConsumers.
SELECT id::text FROM postroom.instance;
