-- How many connections are open, and how many connections ordinary roles may open in all.
--
-- Locks   none.
-- Index   none.
-- Called  by checkConnections.
SELECT (SELECT sum(numbackends) FROM pg_stat_database)::bigint AS used,
       current_setting('max_connections')::bigint - current_setting('superuser_reserved_connections')::bigint AS most;
