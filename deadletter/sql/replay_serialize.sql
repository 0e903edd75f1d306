-- Make replays one after the other until the transaction ends: what the next
-- statement sees to be part of one stays so.
--
-- Locks   an advisory lock.
-- Index   none.
-- Called  by Store.CreateReplay and Store.ResumeReplay.
SELECT pg_advisory_xact_lock(hashtextextended('postroom.replay', 0));
