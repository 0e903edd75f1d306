-- The rights that each part needs, granted with one call for each role. A relay cannot
-- touch the domain's tables, handlers cannot touch the log, and operators change only
-- what is dead, replayed or published once more.
--
--     SELECT postroom.grant_producer('shop_app'), postroom.grant_relay('shop_relay');
--
-- Call the functions as the owner of the tables, once for each role and again after a
-- migration. Each grants in its own schema only.
--
-- Locks   nothing that is in use: every object is new.
-- Called  by Migrate and Print, as the fifth migration.

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
    'Grants a role some privileges, each written as in GRANT, before TO. The other functions call it.';

-- A producer appends events, and compares the id and digest of an event that is there. It
-- gets no right on seq and xid, by which the relay reads in order, on created_at, and on
-- the content of events.
CREATE FUNCTION postroom.grant_producer(role regrole)
RETURNS void
LANGUAGE sql VOLATILE
AS $$
    SELECT postroom.grant_all(ARRAY[
        pg_catalog.format('USAGE ON SCHEMA %s', 'postroom'::regnamespace),
        'USAGE ON TYPE postroom.identifier, postroom.subject, postroom.label, postroom.headers, postroom.digest,
                       postroom.instant, postroom.media_type, postroom.trace_state, postroom.body',
        'INSERT (source, event_id, digest, type, subject, key, content_type, correlation_id, causation_id, occurred_at,
                 not_before, trace_parent, trace_state, headers, data, checked) ON postroom.outbox',
        'SELECT (source, event_id, digest) ON postroom.outbox',
        'SELECT ON postroom.migration', -- Outbox.Check
        'EXECUTE ON FUNCTION postroom.write, postroom.content_digest, postroom.refuse_conflict, postroom.check_event,
                             postroom.unchecked, postroom.cancel'
    ], role)
$$;
COMMENT ON FUNCTION postroom.grant_producer(regrole) IS
    'Grants a role what it needs to write events, and no more. Call it as the owner of the tables, and again after a migration.';

CREATE FUNCTION postroom.grant_relay(role regrole)
RETURNS void
LANGUAGE sql VOLATILE
AS $$
    SELECT postroom.grant_all(ARRAY[
        pg_catalog.format('USAGE ON SCHEMA %s', 'postroom'::regnamespace),
        'SELECT ON postroom.migration, postroom.instance, postroom.archive, postroom.pause',
        'SELECT, DELETE ON postroom.outbox',
        'SELECT ON SEQUENCE postroom.outbox_seq_seq',
        'SELECT, UPDATE ON postroom.relay',
        'SELECT, INSERT, UPDATE, DELETE ON postroom.held, postroom.relay_checkpoint, postroom.refused',
        'SELECT, INSERT, UPDATE ON postroom.republish',
        'INSERT ON postroom.audit',
        'SELECT ON postroom.saga_definition',
        'SELECT (name, state, started_at, waits_since, waits_hour, ended_at) ON postroom.saga', -- it counts them, for metrics
        'EXECUTE ON FUNCTION postroom.event_lock'
    ], role)
$$;
COMMENT ON FUNCTION postroom.grant_relay(regrole) IS
    'Grants a role what a relay needs, and no more. Call it as the owner of the tables, and again after a migration.';

CREATE FUNCTION postroom.grant_inbox(role regrole)
RETURNS void
LANGUAGE sql VOLATILE
AS $$
    SELECT postroom.grant_all(ARRAY[
        pg_catalog.format('USAGE ON SCHEMA %s', 'postroom'::regnamespace),
        'SELECT ON postroom.migration, postroom.instance, postroom.archive, postroom.pause',
        'SELECT, INSERT, UPDATE, DELETE ON postroom.inbox, postroom.held, postroom.receipt, postroom.node',
        'SELECT, INSERT, UPDATE ON postroom.subscription, postroom.dedupe_window',
        'SELECT, UPDATE ON postroom.sweep, postroom.trial',
        'INSERT ON postroom.archive, postroom.audit', -- what its handlers discard
        'USAGE ON SEQUENCE postroom.audit_id_seq',
        'EXECUTE ON FUNCTION postroom.key_lock, postroom.enter_key'
    ], role)
$$;
COMMENT ON FUNCTION postroom.grant_inbox(regrole) IS
    'Grants a role what an inbox needs; its handlers may need more. Call it as the owner of the tables, and again after a migration.';

CREATE FUNCTION postroom.grant_operator(role regrole)
RETURNS void
LANGUAGE sql VOLATILE
AS $$
    SELECT postroom.grant_all(ARRAY[
        pg_catalog.format('USAGE ON SCHEMA %s', 'postroom'::regnamespace),
        (SELECT pg_catalog.format('SELECT ON %s', pg_catalog.string_agg(c.oid::regclass::text, ', '))
         FROM pg_catalog.pg_class c
         WHERE c.relnamespace = 'postroom'::regnamespace AND c.relkind = 'r' AND c.relname <> 'webhook_endpoint'),
        'SELECT (id, account, url, types, rotated_at, created_at, disabled_at, disabled_reason, failing_since, paused_until,
                 last_status, last_at) ON postroom.webhook_endpoint', -- not its secrets
        'UPDATE (disabled_at, disabled_reason, failing_since, paused_until) ON postroom.webhook_endpoint',
        'SELECT ON SEQUENCE postroom.outbox_seq_seq',
        'INSERT, UPDATE, DELETE ON postroom.held, postroom.archive, postroom.job, postroom.job_item, postroom.trial,
                                   postroom.revision, postroom.receipt, postroom.pause',
        'INSERT, UPDATE ON postroom.republish',
        'INSERT ON postroom.audit',
        'UPDATE ON postroom.inbox, postroom.relay',
        'EXECUTE ON FUNCTION postroom.key_lock, postroom.event_lock, postroom.dead_letters, postroom.discarded, postroom.decide_saga'
    ], role)
$$;
COMMENT ON FUNCTION postroom.grant_operator(regrole) IS
    'Grants a role what an operator needs, and no more: it reads everything but secrets, and cannot change or remove a row of audit. Call it as the owner of the tables, and again after a migration.';

CREATE FUNCTION postroom.grant_idempotency(role regrole)
RETURNS void
LANGUAGE sql VOLATILE
AS $$
    SELECT postroom.grant_all(ARRAY[
        pg_catalog.format('USAGE ON SCHEMA %s', 'postroom'::regnamespace),
        'SELECT, INSERT, UPDATE, DELETE ON postroom.idempotency',
        'SELECT ON postroom.migration, postroom.instance' -- for Guard.Check and for keys that vendors get
    ], role)
$$;
COMMENT ON FUNCTION postroom.grant_idempotency(regrole) IS
    'Grants a role what a service needs that keeps answers, and no more. Call it as the owner of the tables, and again after a migration.';

CREATE FUNCTION postroom.grant_webhooks(role regrole)
RETURNS void
LANGUAGE sql VOLATILE
AS $$
    SELECT postroom.grant_all(ARRAY[
        pg_catalog.format('USAGE ON SCHEMA %s', 'postroom'::regnamespace),
        'SELECT ON postroom.migration', -- Endpoints.Check
        'SELECT, INSERT, UPDATE ON postroom.webhook_endpoint',
        'INSERT ON postroom.audit',
        'SELECT (id) ON postroom.audit' -- INSERT … RETURNING id
    ], role)
$$;
COMMENT ON FUNCTION postroom.grant_webhooks(regrole) IS
    'Grants a role what it needs to send webhooks and to manage their endpoints, besides grant_inbox for the process that sends. Call it as the owner of the tables, and again after a migration.';

CREATE FUNCTION postroom.grant_sagas(role regrole)
RETURNS void
LANGUAGE sql VOLATILE
AS $$
    SELECT postroom.grant_all(ARRAY[
        pg_catalog.format('USAGE ON SCHEMA %s', 'postroom'::regnamespace),
        'USAGE ON TYPE postroom.saga_name, postroom.saga_key, postroom.saga_state, postroom.saga_data, postroom.saga_direction',
        'SELECT ON postroom.migration, postroom.instance, postroom.dedupe_window, postroom.node',
        'SELECT, INSERT, UPDATE ON postroom.saga_definition',
        'SELECT, INSERT, UPDATE, DELETE ON postroom.saga, postroom.saga_step',
        'SELECT (source, event_id, action, details) ON postroom.audit' -- the decisions of operators
    ], role)
$$;
COMMENT ON FUNCTION postroom.grant_sagas(regrole) IS
    'Grants a role what it needs to begin and run sagas, besides grant_producer and grant_inbox. Call it as the owner of the tables, and again after a migration.';
