-- Make the later statements of the transaction, and the checks of foreign keys, read the table held
-- through its indexes, in index order. Without these settings, a plan that was made while the table
-- was small, or without the value of LIMIT, would read and sort the complete table. JIT is off: the
-- server counts a disabled kind of scan as very expensive, and would compile each plan that has
-- such a scan. Plans are generic, because planning for each list of values takes as long as the
-- statement itself.
--
-- Locks   none.
-- Index   none.
-- Called  by Claims.sendClaim, Claims.Renew, Handler.BeginAlong, Handler.SettleKey,
--         Handler.SettleAll, Handler.LeaveKey, Handler.noting, Receipts.settle, Receipts.start, Receipts.finish,
--         Records.HeldKeys, Records.SkipDead and Upkeep.Sweep, before statements on held, receipt and
--         inbox, in their transaction.
SELECT set_config('enable_bitmapscan', 'off', true), set_config('enable_seqscan', 'off', true), set_config('enable_sort', 'off', true),
       set_config('enable_hashjoin', 'off', true), set_config('enable_mergejoin', 'off', true), set_config('jit', 'off', true),
       set_config('plan_cache_mode', 'force_generic_plan', true);
