-- Which server process serves a connection.
--
-- Locks   none.
-- Called  by Log.Lead, of each of its connections several times.
SELECT pg_backend_pid();
