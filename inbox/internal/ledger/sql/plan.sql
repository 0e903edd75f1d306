-- Make the later statements of the transaction, and the check of a foreign key, read held by its
-- indexes and in their order. A plan that was made when held was small, or without the value of
-- LIMIT, would read and sort the complete table. JIT is off: the server counts a disabled kind of
-- scan as very expensive, and would compile each plan that has one. Plans are generic, because
-- planning for each list of values takes as long as the statement.
--
-- Locks   none.
-- Index   none.
-- Called  before statements on held and receipt, in their transaction: by runner.send,
--         Handler.BeginAlong, Handler.SettleKey, Handler.noting, Receipts.settle,
--         Claims.Renew, Receipts.start, Receipts.finish and Upkeep.Sweep.
SELECT set_config('enable_bitmapscan', 'off', true), set_config('enable_seqscan', 'off', true), set_config('enable_sort', 'off', true),
       set_config('enable_hashjoin', 'off', true), set_config('enable_mergejoin', 'off', true), set_config('jit', 'off', true),
       set_config('plan_cache_mode', 'force_generic_plan', true);
