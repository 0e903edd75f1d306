-- Lock replay $1 for one step. credit is how many events the rate allows the replay to release now.
-- It is NULL if the replay has no rate. The CASE is necessary, because least and greatest ignore
-- NULL. due is true if no step was stored yet, or none in the last five seconds.
--
-- Locks   its row, until the transaction ends.
-- Index   replay_pkey (id).
-- Called  by Store.step, Store.CancelReplay and Store.ResumeReplay.
SELECT state, phase, verdict, items, released, succeeded, failed, passed_over, before_succeeded, before_failed, before_passed_over, canary, stop_at, attempts, as_new,
       CASE WHEN rate IS NOT NULL THEN
           least(credit + rate * greatest(extract(epoch FROM clock_timestamp() - coalesce(stepped_at, clock_timestamp()))::float8, 0),
                 greatest(rate, 1))
       END AS credit,
       stepped_at IS NULL OR stepped_at < clock_timestamp() - interval '5 seconds' AS due
FROM postroom.replay
WHERE id = $1
FOR UPDATE;
