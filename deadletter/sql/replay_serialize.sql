-- Let only one transaction at a time choose events for replays. So the next statement sees which
-- events are in a replay, and no other transaction puts events into a replay meanwhile.
--
-- Locks   an advisory lock.
-- Index   none.
-- Called  by Store.CreateReplay and Store.ResumeReplay.

--guard:replays-are-made-one-after-the-other = 1
SELECT pg_advisory_xact_lock(hashtextextended('postroom.replay', 0::bigint));
