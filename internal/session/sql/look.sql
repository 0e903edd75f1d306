-- Release the session's advisory locks, and return the state of the session: its users, whether it
-- has a schema for temporary tables, and the settings that matter most to the next user. A query of
-- pg_settings would return more settings, but no custom ones (app.tenant), and take milliseconds.
--
-- Locks   none; releases the advisory locks of the session.
-- Index   none.
-- Called  by Pool.Begin, Pool.End and Pool.Lend.
SELECT pg_my_temp_schema() <> 0::oid, session_user::text, current_user::text,
       ARRAY[current_setting('search_path'), current_setting('TimeZone'), current_setting('DateStyle'), current_setting('IntervalStyle'),
             current_setting('client_encoding'), current_setting('standard_conforming_strings'), current_setting('application_name'),
             current_setting('statement_timeout'), current_setting('lock_timeout'),
             current_setting('idle_in_transaction_session_timeout'), current_setting('default_transaction_isolation'),
             current_setting('default_transaction_read_only'), current_setting('synchronous_commit'),
             current_setting('session_replication_role'), current_setting('row_security')],
       pg_advisory_unlock_all()::text;
