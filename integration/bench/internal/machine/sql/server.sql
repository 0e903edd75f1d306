-- The settings that decide how fast this server commits.
--
-- Locks   none.
-- Called  by machine.Describe.
SELECT current_setting('server_version') AS version,
       current_setting('fsync') AS fsync,
       current_setting('synchronous_commit') AS commit,
       current_setting('shared_buffers') AS buffers;
