-- Record the progress of replay $1.
--
-- $2 state   $3 phase   $4 verdict   $5 to $8 how many more events were released, succeeded, failed
-- and were skipped   $9 the credit that is left; NULL keeps the credit
--
-- Locks   its row.
-- Index   replay_pkey (id).
-- Called  by Store.step, Store.CancelReplay and Store.ResumeReplay.
UPDATE postroom.replay
SET state = $2, phase = $3, verdict = $4, released = released + $5, succeeded = succeeded + $6, failed = failed + $7,
    passed_over = passed_over + $8, credit = coalesce($9, credit), stepped_at = clock_timestamp(),
    ended_at = CASE WHEN $2 = 'running' THEN NULL ELSE now() END
WHERE id = $1;
