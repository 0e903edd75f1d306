-- End the sessions that still have the application name $1.
--
-- Locks   none.
-- Called  by servers.dropSchemas: a statement can go on for a long time after its client was
--         interrupted, and it keeps its locks on the tables that have to be dropped.
SELECT count(pg_terminate_backend(pid))
FROM pg_stat_activity
WHERE application_name = $1 AND pid <> pg_backend_pid();
