-- Return a row if the claim on the held event $1 with epoch $2 has ended, and no process has claimed
-- the event since, or if the event is in the archive after $3 attempts. If so, and if fail.sql has
-- just changed nothing, an earlier fail.sql recorded the failure, and its answer was lost. $3 is NULL
-- if the failure discards no event.
--
-- Locks   none.
-- Index   held_pkey (id), archive_pkey (id).
-- Called  by Handler.Fail and Handler.FailAlone, after fail.sql.

--guard:a-recorded-failure-is-no-lost-claim false
SELECT FROM postroom.held WHERE id = $1 AND epoch = $2 AND claimed_by IS NULL
UNION ALL
--guard:a-recorded-discard-is-no-lost-claim 1 false
SELECT FROM postroom.archive WHERE id = $1 AND attempts = $3::int AND class = 'discarded';
