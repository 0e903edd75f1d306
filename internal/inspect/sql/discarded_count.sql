-- The number of discarded events, counted up to 100,000.
--
-- Locks   none.
-- Index   archive_time (discarded_at, id).
-- Called  by Inspector.Status.
SELECT count(*) FROM (SELECT FROM postroom.archive ORDER BY discarded_at, id LIMIT 100000) a;
