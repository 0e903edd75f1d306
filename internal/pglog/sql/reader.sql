-- Make the connection that reads the log keep its plans: planning a pass takes four times as long
-- as running it. The statements allow only one plan, so a plan that was made while all tables
-- were empty is good later, too: sorting is off, so rows in the order of an index are read
-- through that index.
--
-- Locks   none.
-- Index   none.
-- Called  by Log.Lead, after connect.sql.
SET plan_cache_mode = force_generic_plan;
SET enable_sort = off;
