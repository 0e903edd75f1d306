-- Give back the session's advisory locks, and return what the session is like: its users,
-- whether it has a schema for temporary tables, and the settings that matter most to
-- whoever comes next. pg_settings would have all of them, and takes milliseconds.
--
-- Locks   none; gives back advisory locks of the session.
-- Index   none.
-- Called  by session.Pool.Begin and session.Pool.End.
SELECT pg_my_temp_schema() <> 0, session_user::text, current_user::text,
       ARRAY[current_setting('search_path'), current_setting('TimeZone'), current_setting('DateStyle'), current_setting('IntervalStyle'),
             current_setting('client_encoding'), current_setting('standard_conforming_strings'), current_setting('application_name'),
             current_setting('statement_timeout'), current_setting('lock_timeout'),
             current_setting('idle_in_transaction_session_timeout'), current_setting('default_transaction_isolation'),
             current_setting('default_transaction_read_only'), current_setting('synchronous_commit'),
             current_setting('session_replication_role'), current_setting('row_security')],
       pg_advisory_unlock_all()::text;
