-- Whether this role may see the transactions of other roles.
--
-- Locks   none.
-- Index   none.
-- Called  by Inspector.Tables.
SELECT pg_catalog.pg_has_role(current_user, 'pg_read_all_stats', 'USAGE') OR rolsuper FROM pg_roles WHERE rolname = current_user;
