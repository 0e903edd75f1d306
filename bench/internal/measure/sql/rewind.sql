-- Make the relay's row what it was when the log was empty: nothing of the log is
-- published or held, and nobody leads.
--
-- Locks   the one row of relay, and held.
-- Called  by servers.backlog. No relay runs.
DO $$
BEGIN
    TRUNCATE postroom.held;
    DELETE FROM postroom.relay;
    INSERT INTO postroom.relay (cluster) SELECT system_identifier FROM pg_control_system();
END $$;
