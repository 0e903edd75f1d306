-- Have the statements after it, and the check of a foreign key, find what is held by
-- its index, in its order. A plan that was made while little was held, or from
-- statistics that do not know of LIMIT's parameter, would read, and sort, all that is.
-- What is off counts as so dear that the server would compile the plan, each time; and
-- it would plan anew for each list of values, which takes as long as what they do.
--
-- Locks   none.
-- Index   none.
-- Called  before statements on held and receipt, in their transaction: by runner.send,
--         Handler.BeginAlong, Handler.SettleKey, Handler.noting, Receipts.settle,
--         Claims.Renew, Receipts.start, Receipts.finish and Upkeep.Sweep.
SELECT set_config('enable_bitmapscan', 'off', true), set_config('enable_seqscan', 'off', true), set_config('enable_sort', 'off', true),
       set_config('enable_hashjoin', 'off', true), set_config('enable_mergejoin', 'off', true), set_config('jit', 'off', true),
       set_config('plan_cache_mode', 'force_generic_plan', true);
