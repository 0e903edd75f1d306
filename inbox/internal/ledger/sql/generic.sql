-- Make the next statement use its stored plan. Otherwise the server would plan the statement again
-- for each list of values, which takes longer than the statement itself. Also limit how long the
-- statement waits for a lock: another process may be deciding one of the events, which can take as
-- long as its handler, and the other events must not wait for that.
--
-- Locks   none.
-- Index   none.
-- Called  by DB.Store, before hold.sql and in its transaction.
SELECT set_config('plan_cache_mode', 'force_generic_plan', true),
       --guard:an-event-that-another-process-decides-delays-no-other remove
       set_config('lock_timeout', '500ms', true);
