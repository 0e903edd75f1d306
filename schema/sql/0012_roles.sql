-- What each part needs of the tables, given by one call for each role, as producers
-- have it already: a relay that cannot touch the domain's tables, handlers that cannot
-- touch the log, operators who change nothing but what is dead.
--
-- Additive: roles that have been granted more keep it.

-- Give a role some privileges. For the functions below, whose callers own the tables.
CREATE FUNCTION postroom.grant_all(permissions text[], role regrole)
RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    permission text;
BEGIN
    FOREACH permission IN ARRAY permissions LOOP
        EXECUTE pg_catalog.format('GRANT %s TO %s', permission, role);
    END LOOP;
END
$$;
COMMENT ON FUNCTION postroom.grant_all(text[], regrole) IS
    'Grants a role some privileges, each as GRANT has it before TO.';

-- Give a role what a relay needs, and no more.
--
--     SELECT postroom.grant_relay('shop_relay');
--
-- Call it as the owner of the tables; again after a migration. So with the others.
CREATE FUNCTION postroom.grant_relay(role regrole)
RETURNS void
LANGUAGE sql VOLATILE
AS $$
    SELECT postroom.grant_all(ARRAY[
        pg_catalog.format('USAGE ON SCHEMA %s', 'postroom'::regnamespace),
        'SELECT ON postroom.migration, postroom.instance, postroom.archive',
        'SELECT, DELETE ON postroom.outbox',
        'SELECT ON SEQUENCE postroom.outbox_seq_seq',
        'SELECT, UPDATE ON postroom.relay',
        'SELECT, INSERT, UPDATE, DELETE ON postroom.held, postroom.relay_mark',
        'SELECT, INSERT, UPDATE ON postroom.rewind',
        'INSERT ON postroom.audit'
    ], role)
$$;
COMMENT ON FUNCTION postroom.grant_relay(regrole) IS
    'Grants a role what a relay needs, and no more. Call it as the owner of the tables, again after a migration.';

-- Give a role what an inbox needs, beside what its handlers do.
CREATE FUNCTION postroom.grant_inbox(role regrole)
RETURNS void
LANGUAGE sql VOLATILE
AS $$
    SELECT postroom.grant_all(ARRAY[
        pg_catalog.format('USAGE ON SCHEMA %s', 'postroom'::regnamespace),
        'SELECT ON postroom.migration, postroom.instance, postroom.archive',
        'SELECT, INSERT, UPDATE, DELETE ON postroom.inbox, postroom.held, postroom.receipt, postroom.node',
        'SELECT, INSERT, UPDATE ON postroom.subscription',
        'SELECT, UPDATE ON postroom.sweep, postroom.trial',
        'EXECUTE ON FUNCTION postroom.key_lock, postroom.enter_key'
    ], role)
$$;
COMMENT ON FUNCTION postroom.grant_inbox(regrole) IS
    'Grants a role what an inbox needs, beside what its handlers do. Call it as the owner of the tables, again after a migration.';

-- Give a role what somebody needs who looks at everything and decides about what is
-- dead. What was done, it can neither change nor remove.
CREATE FUNCTION postroom.grant_operator(role regrole)
RETURNS void
LANGUAGE sql VOLATILE
AS $$
    SELECT postroom.grant_all(ARRAY[
        pg_catalog.format('USAGE ON SCHEMA %s', 'postroom'::regnamespace),
        pg_catalog.format('SELECT ON ALL TABLES IN SCHEMA %s', 'postroom'::regnamespace),
        'SELECT ON SEQUENCE postroom.outbox_seq_seq',
        'INSERT, UPDATE, DELETE ON postroom.held, postroom.archive, postroom.job, postroom.job_item, postroom.trial,
                                   postroom.revision, postroom.receipt',
        'INSERT, UPDATE ON postroom.rewind',
        'INSERT ON postroom.audit',
        'UPDATE ON postroom.inbox, postroom.relay',
        'EXECUTE ON FUNCTION postroom.key_lock, postroom.dead_letters, postroom.discarded'
    ], role)
$$;
COMMENT ON FUNCTION postroom.grant_operator(regrole) IS
    'Grants a role what an operator needs, and no more. Call it as the owner of the tables, again after a migration.';
