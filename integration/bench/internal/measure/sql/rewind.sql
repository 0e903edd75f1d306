-- Reset the row of relay to the state for an empty log: no event is published or held, and no
-- relay leads.
--
-- Locks   the one row of relay, and held.
-- Called  by servers.backlog. No relay runs.
DO $$
BEGIN
    TRUNCATE postroom.held;
    DELETE FROM postroom.relay;
    INSERT INTO postroom.relay (cluster) SELECT system_identifier FROM pg_control_system();
END $$;
