-- Whether this role sees the transactions of others.
--
-- Locks   none.
-- Index   none.
-- Called  by Inspector.Tables.
SELECT pg_has_role(current_user, 'pg_read_all_stats', 'USAGE') OR rolsuper FROM pg_roles WHERE rolname = current_user;
