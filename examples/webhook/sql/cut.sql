-- End all sessions of database $1, as a failover or an operator would. Return a row for each
-- session.
--
-- Locks   none.
-- Index   none; it reads a view of the server.
-- Called  by deployment.cutConnections and deployment.takeDatabaseAway, from a session in another
--         database.
SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1;
