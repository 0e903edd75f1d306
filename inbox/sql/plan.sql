-- Have the statements after it find what is due by their index, in its order. A
-- plan that was made while little was held would read, and sort, all that is. What
-- is off counts as so dear that the server would compile the plan, each time.
--
-- Locks   none.
-- Index   none.
-- Called  by runner.claim and runner.runAlone, in the transaction of their statements and the same round trip.
SELECT set_config('enable_bitmapscan', 'off', true), set_config('enable_seqscan', 'off', true), set_config('enable_sort', 'off', true),
       set_config('jit', 'off', true);
