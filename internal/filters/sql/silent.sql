-- The filters that have taken no event for a day, while other events came within the last day.
--
-- Locks   none.
-- Index   none; filter has few rows.
-- Order   by kind and name.
-- Called  by Silent.
SELECT kind, name, passed, extract(epoch FROM now() - coalesce(taken_at, since))::float8
FROM postroom.filter
--guard:a-filter-that-nothing-came-to-is-no-finding 1 true
--guard:a-filter-that-takes-events-is-no-finding 2 true
WHERE passed_at > now() - interval '1 day' AND coalesce(taken_at, since) < now() - interval '1 day'
ORDER BY kind, name
LIMIT 100;
