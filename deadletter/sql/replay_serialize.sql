-- Let one transaction at a time choose events for replays, so that the next statement sees
-- which events are in a replay, and this does not change.
--
-- Locks   an advisory lock.
-- Index   none.
-- Called  by Store.CreateReplay and Store.ResumeReplay.
SELECT pg_advisory_xact_lock(hashtextextended('postroom.replay', 0));
