-- Have the connection that reads the log keep its plans: to plan a pass takes four times as
-- long as to run it. The statements leave the planner no choice, so a plan from when all
-- tables were empty is good later, too: sorting is off, so rows in the order of an index
-- are read through that index.
--
-- Locks   none.
-- Index   none.
-- Called  by Log.Lead, after connect.sql.
SET plan_cache_mode = force_generic_plan;
SET enable_sort = off;
