-- Which server process serves a connection.
--
-- Locks   none.
-- Called  by Log.Lead, several times on each of its connections.
SELECT pg_backend_pid();
