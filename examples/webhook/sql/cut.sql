-- End all sessions of database $1, as a failover or an operator would. Returns how
-- many there were.
--
-- Locks   none.
-- Index   none; it reads a view of the server.
-- Called  by trouble.cut, from a session in another database.
SELECT count(*) FROM (SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1) cut;
