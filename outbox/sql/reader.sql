-- Have the connection that reads the log keep its plans: to plan a pass takes four
-- times as long as to run it. Its statements leave nothing to choose, so that a
-- plan made while all tables were empty serves as well later.
--
-- Locks   none.
-- Index   none.
-- Called  by Log.Lead, after connect.sql.
SET plan_cache_mode = force_generic_plan;
