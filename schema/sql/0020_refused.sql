-- The failures of an outgoing event that was published in the end are kept for as long as
-- its row of the log: the row of held, which has them otherwise, is removed with the success.
--
-- Additive: relays of version 19 keep nothing. No step reads a table. There are no checks,
-- beside those that the columns' types make: a recording may not fail for what is only kept
-- to be looked at.
CREATE TABLE postroom.refused (
    seq      bigint PRIMARY KEY,
    failures jsonb  NOT NULL
);
COMMENT ON TABLE postroom.refused IS
    'Events of the log that the broker took after it had refused them. A row leaves with that of the log.';
COMMENT ON COLUMN postroom.refused.failures IS
    'The last ten failures, as held had them: at, class, text.';

-- Whoever may read or write what else a relay keeps may do so here: relays and operators
-- go on without being granted anything again.
DO $$
DECLARE
    permission text;
BEGIN
    FOR permission IN
        SELECT format('%s ON postroom.refused TO %s', acl.privilege_type, CASE acl.grantee WHEN 0 THEN 'PUBLIC' ELSE acl.grantee::regrole::text END)
        FROM pg_catalog.pg_class c, pg_catalog.aclexplode(c.relacl) AS acl
        WHERE c.oid = 'postroom.relay_mark'::regclass AND acl.grantee <> c.relowner
          AND acl.privilege_type IN ('SELECT', 'INSERT', 'UPDATE', 'DELETE')
    LOOP
        EXECUTE 'GRANT ' || permission;
    END LOOP;
END
$$;

CREATE OR REPLACE FUNCTION postroom.grant_relay(role regrole)
RETURNS void
LANGUAGE sql VOLATILE
AS $$
    SELECT postroom.grant_all(ARRAY[
        pg_catalog.format('USAGE ON SCHEMA %s', 'postroom'::regnamespace),
        'SELECT ON postroom.migration, postroom.instance, postroom.archive',
        'SELECT, DELETE ON postroom.outbox',
        'SELECT ON SEQUENCE postroom.outbox_seq_seq',
        'SELECT, UPDATE ON postroom.relay',
        'SELECT, INSERT, UPDATE, DELETE ON postroom.held, postroom.relay_mark, postroom.refused',
        'SELECT, INSERT, UPDATE ON postroom.rewind',
        'INSERT ON postroom.audit'
    ], role)
$$;
