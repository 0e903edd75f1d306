-- The rules of an event are checked once: by the Go package, whose rows say so, or
-- else by a trigger. They were constraints of the columns' domains, which the server
-- sets up anew for each INSERT, column by column, whether it has a value or not: a
-- third of what an event cost its transaction beyond the round trip.
--
-- A writer in SQL is held to the same rules as before, and a fault has the name that
-- it had. Whoever says that a row is checked, and has not, is found out by the relay,
-- which looks at each event once more before it is sent.
--
-- Additive: rows of code of any version before do not say that they are checked.
--
-- No step reads a table. Producers wait for as long as the column takes to be added.

-- The same constraints move from each domain to another one, by which the trigger
-- checks. Those that are left say what a column holds, and cost nothing: a domain
-- without constraints is its type.
DO $$
DECLARE
    domain text;
    base   text;
    rule   record;
BEGIN
    FOR domain, base IN
        VALUES ('identifier', 'text'), ('subject', 'text'), ('label', 'text'), ('media_type', 'text'), ('trace_state', 'text'),
               ('instant', 'timestamptz'), ('body', 'bytea')
    LOOP
        EXECUTE pg_catalog.format('CREATE DOMAIN postroom.%I AS %s', 'checked_' || domain, base);
        FOR rule IN
            SELECT conname, pg_catalog.pg_get_constraintdef(oid) AS definition
            FROM pg_catalog.pg_constraint
            WHERE contypid = ('postroom.' || domain)::regtype
            ORDER BY oid
        LOOP
            EXECUTE pg_catalog.format('ALTER DOMAIN postroom.%I ADD CONSTRAINT %I %s', 'checked_' || domain, rule.conname, rule.definition);
            EXECUTE pg_catalog.format('ALTER DOMAIN postroom.%I DROP CONSTRAINT %I', domain, rule.conname);
        END LOOP;
    END LOOP;
END
$$;
ALTER TABLE postroom.outbox
    ADD COLUMN checked boolean NOT NULL DEFAULT false,
    ALTER COLUMN digest TYPE bytea, -- these domains keep their rules: other tables, and postroom.write, have them too
    ALTER COLUMN headers TYPE jsonb;
COMMENT ON COLUMN postroom.outbox.checked IS
    'The writer has held the event to its rules: the Go package says so. Else the trigger outbox_checked does it.';

-- The headers' size is that of names and values as they travel. headers_size takes
-- it from their JSON, and so a little too small where a value is no text.
CREATE FUNCTION postroom.check_event()
RETURNS trigger
LANGUAGE plpgsql
AS $$
DECLARE
    nulls int; -- assigned, and so evaluated without a plan of its own
BEGIN
    nulls := pg_catalog.num_nulls(
        NEW.source::postroom.checked_identifier, NEW.event_id::postroom.checked_identifier,
        NEW.type::postroom.checked_subject, NEW.subject::postroom.checked_subject, NEW.digest::postroom.digest,
        NEW.key::postroom.checked_label, NEW.content_type::postroom.checked_media_type,
        NEW.correlation_id::postroom.checked_label, NEW.causation_id::postroom.checked_label,
        NEW.trace_parent::postroom.checked_label, NEW.trace_state::postroom.checked_trace_state,
        NEW.created_at::postroom.checked_instant, NEW.occurred_at::postroom.checked_instant,
        NEW.not_before::postroom.checked_instant, NEW.data::postroom.checked_body);
    IF NEW.headers IS NOT NULL THEN
        nulls := pg_catalog.num_nulls(NEW.headers::postroom.headers);
        IF pg_catalog.octet_length(NEW.headers::text) > 32768 AND 32768 < (
            SELECT pg_catalog.sum(pg_catalog.octet_length(key) + coalesce(pg_catalog.octet_length(value), 0))
            FROM pg_catalog.jsonb_each_text(NEW.headers))
        THEN
            RAISE EXCEPTION 'value for domain postroom.checked_headers violates check constraint "headers_size"'
                USING ERRCODE = 'check_violation', CONSTRAINT = 'headers_size';
        END IF;
    END IF;
    RETURN NEW;
END
$$;
COMMENT ON FUNCTION postroom.check_event() IS
    'Refuses an event that breaks the rules of the checked_ domains: SQLSTATE 23514, with the name of the rule.';
CREATE TRIGGER outbox_checked BEFORE INSERT ON postroom.outbox
    FOR EACH ROW WHEN (NOT NEW.checked) EXECUTE FUNCTION postroom.check_event();

-- Give a role what a producer needs, and no more: to append events, and to
-- compare the id and digest of one that is there. Not seq and xid, on which the
-- relay's order rests, nor created_at; not the content of events.
--
--     SELECT postroom.grant_producer('shop_app');
--
-- Call it as the owner of the tables; again after a migration.
CREATE OR REPLACE FUNCTION postroom.grant_producer(role regrole)
RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    permission text;
BEGIN
    FOREACH permission IN ARRAY ARRAY[
        pg_catalog.format('USAGE ON SCHEMA %s', 'postroom'::regnamespace),
        'USAGE ON TYPE postroom.identifier, postroom.subject, postroom.label, postroom.headers, postroom.digest,
                       postroom.instant, postroom.media_type, postroom.trace_state, postroom.body',
        'INSERT (source, event_id, digest, type, subject, key, content_type, correlation_id, causation_id, occurred_at,
                 not_before, trace_parent, trace_state, headers, data, checked) ON postroom.outbox',
        'SELECT (source, event_id, digest) ON postroom.outbox',
        'SELECT ON postroom.migration', -- Outbox.Check
        'EXECUTE ON FUNCTION postroom.write, postroom.content_digest, postroom.refuse_conflict'
    ] LOOP
        EXECUTE pg_catalog.format('GRANT %s TO %s', permission, role);
    END LOOP;
END
$$;

-- Roles that may write events may say that they have checked them.
DO $$
DECLARE
    producer text;
BEGIN
    FOR producer IN
        SELECT CASE acl.grantee WHEN 0 THEN 'PUBLIC' ELSE acl.grantee::regrole::text END
        FROM pg_catalog.pg_attribute, pg_catalog.aclexplode(attacl) AS acl
        WHERE attrelid = 'postroom.outbox'::regclass AND attname = 'digest' AND acl.privilege_type = 'INSERT'
    LOOP
        EXECUTE pg_catalog.format('GRANT INSERT (checked) ON postroom.outbox TO %s', producer);
    END LOOP;
END
$$;
