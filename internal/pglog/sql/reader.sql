-- Have the connection that reads the log keep its plans: to plan a pass takes four
-- times as long as to run it. Its statements leave nothing to choose, so that a
-- plan made while all tables were empty serves as well later: what comes in the order
-- of an index is read by that index, because sorting is off.
--
-- Locks   none.
-- Index   none.
-- Called  by Log.Lead, after connect.sql.
SET plan_cache_mode = force_generic_plan;
SET enable_sort = off;
