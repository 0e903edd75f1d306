-- Let the connection that reads the log keep its plans, because planning a pass takes four times as
-- long as running it. A plan that was made while all tables were empty is still good later, because
-- the statements allow only one plan. Sorting is off, so rows are read in order through an index.
--
-- Locks   none.
-- Index   none.
-- Called  by Log.Lead, after connect.sql.
SET plan_cache_mode = force_generic_plan;
SET enable_sort = off;
