-- A row that does not say it is checked is checked when its transaction commits. A trigger
-- did it at once, and was set up for each INSERT, also of rows that need none: 5 µs of
-- the 300 that a transaction with an event takes. The default of a column costs nothing
-- where the writer gives a value.
--
-- A fault fails the transaction as before, with SQLSTATE 23514 and the name that it had.
-- postroom.write says so at once, as it did.
--
-- Additive: producers of any version write as they did, and an upgrade may go on beside them.
--
-- No step reads a table. Producers wait for a moment.

-- The transactions at work that have written rows which they did not check.
CREATE TABLE postroom.unchecked (
    xid xid8 PRIMARY KEY
);
COMMENT ON TABLE postroom.unchecked IS
    'A row for each transaction that inserts into outbox directly, until its rows are checked: at its end. Committed rows there are none.';

DROP TRIGGER outbox_checked ON postroom.outbox;
DROP FUNCTION postroom.check_event();

-- Fail where an event breaks a rule. The headers' size is that of names and values as
-- they travel. headers_size takes it from their JSON, and so a little too small where
-- a value is no text.
CREATE FUNCTION postroom.check_event(
    source text, event_id text, digest bytea, type text, subject text, key text, content_type text, correlation_id text,
    causation_id text, created_at timestamptz, occurred_at timestamptz, not_before timestamptz, trace_parent text,
    trace_state text, headers jsonb, data bytea
) RETURNS void
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    nulls int; -- assigned, and so evaluated without a plan of its own
BEGIN
    nulls := pg_catalog.num_nulls(
        $1::postroom.checked_identifier, $2::postroom.checked_identifier, $3::postroom.digest,
        $4::postroom.checked_subject, $5::postroom.checked_subject,
        $6::postroom.checked_label, $7::postroom.checked_media_type,
        $8::postroom.checked_label, $9::postroom.checked_label,
        $10::postroom.checked_instant, $11::postroom.checked_instant, $12::postroom.checked_instant,
        $13::postroom.checked_label, $14::postroom.checked_trace_state, $16::postroom.checked_body);
    IF $15 IS NOT NULL THEN
        nulls := pg_catalog.num_nulls($15::postroom.headers);
        IF pg_catalog.octet_length($15::text) > 32768 AND 32768 < (
            SELECT pg_catalog.sum(pg_catalog.octet_length(header.key) + coalesce(pg_catalog.octet_length(header.value), 0))
            FROM pg_catalog.jsonb_each_text($15) AS header)
        THEN
            RAISE EXCEPTION 'value for domain postroom.checked_headers violates check constraint "headers_size"'
                USING ERRCODE = 'check_violation', CONSTRAINT = 'headers_size';
        END IF;
    END IF;
END
$$;
COMMENT ON FUNCTION postroom.check_event IS
    'Refuses an event that breaks the rules of the checked_ domains: SQLSTATE 23514, with the name of the rule.';

-- Check the rows of a transaction that nobody has checked. It runs with the rights of
-- the tables' owner: a producer cannot read the log. So that a writer's operators have
-- no say in it, the path is set.
CREATE FUNCTION postroom.check_unchecked()
RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM postroom.check_event(o.source, o.event_id, o.digest, o.type, o.subject, o.key, o.content_type, o.correlation_id,
        o.causation_id, o.created_at, o.occurred_at, o.not_before, o.trace_parent, o.trace_state, o.headers, o.data)
    FROM postroom.outbox AS o
    WHERE o.xid = NEW.xid AND NOT o.checked;
    DELETE FROM postroom.unchecked AS u WHERE u.xid = NEW.xid;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION postroom.check_unchecked() IS
    'Checks the events of a transaction that were inserted into outbox directly, when it commits.';
CREATE CONSTRAINT TRIGGER unchecked_rows AFTER INSERT ON postroom.unchecked
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION postroom.check_unchecked();

-- What a row says that leaves it open whether it is checked: no, and that its
-- transaction has such rows. Where constraints are immediate the trigger has come and
-- gone before the row is there.
CREATE FUNCTION postroom.unchecked()
RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF EXISTS (SELECT FROM postroom.unchecked AS u WHERE u.xid = pg_current_xact_id()) THEN
        RETURN false;
    END IF;
    INSERT INTO postroom.unchecked (xid) VALUES (pg_current_xact_id());
    IF NOT EXISTS (SELECT FROM postroom.unchecked AS u WHERE u.xid = pg_current_xact_id()) THEN
        RAISE EXCEPTION 'an event that is inserted into outbox directly is checked at the end of its transaction, and constraints are immediate in this one'
            USING ERRCODE = 'object_not_in_prerequisite_state',
                HINT = 'Call postroom.write, or SET CONSTRAINTS ALL DEFERRED before the INSERT.';
    END IF;
    RETURN false;
END
$$;
COMMENT ON FUNCTION postroom.unchecked() IS
    'The default of outbox.checked: false, and the transaction will check the row before it commits.';
ALTER TABLE postroom.outbox ALTER COLUMN checked SET DEFAULT postroom.unchecked();
COMMENT ON COLUMN postroom.outbox.checked IS
    'The writer has held the event to its rules: the Go package and postroom.write say so. Else it is done when the transaction commits.';

-- Append an event and return its id.
--
--     SELECT postroom.write(source => '/shop', type => 'order.placed', data => '{"id": 7}', key => '7');
--
-- data is jsonb, json, text (both as they are written) or bytea. An event whose
-- source, id and content are in the log already is left as it is; with other
-- content that is SQLSTATE 23PR1. Faults are those of check_event.
CREATE OR REPLACE FUNCTION postroom.write(
    source         text,
    type           text,
    data           anycompatible,
    key            text        DEFAULT NULL,
    id             text        DEFAULT NULL, -- NULL: a UUIDv7
    headers        jsonb       DEFAULT NULL,
    subject        text        DEFAULT NULL, -- NULL: as type
    content_type   text        DEFAULT NULL, -- NULL: application/json
    not_before     timestamptz DEFAULT NULL,
    occurred_at    timestamptz DEFAULT NULL,
    correlation_id text        DEFAULT NULL,
    causation_id   text        DEFAULT NULL,
    trace_parent   text        DEFAULT NULL,
    trace_state    text        DEFAULT NULL
) RETURNS text
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_column
DECLARE
    body   bytea;
    object postroom.headers := nullif(write.headers, '{}'::jsonb); -- checked here: the digest reads it
    name   text := coalesce(write.subject, write.type);
    media  text := coalesce(write.content_type, 'application/json');
    event  text := write.id;
    sum    bytea;
BEGIN
    IF pg_catalog.pg_typeof(write.data) = 'pg_catalog.bytea'::regtype THEN
        body := write.data;
    ELSIF pg_catalog.pg_typeof(write.data) IN ('pg_catalog.jsonb'::regtype, 'pg_catalog.json'::regtype,
            'pg_catalog.text'::regtype, 'pg_catalog.varchar'::regtype) THEN
        body := pg_catalog.convert_to(write.data::text, 'UTF8');
    ELSE
        RAISE EXCEPTION 'data is %, want jsonb, json, text or bytea', pg_catalog.pg_typeof(write.data)
            USING ERRCODE = 'datatype_mismatch';
    END IF;

    IF event IS NULL THEN
        -- RFC 9562: 48 bits of milliseconds, then version 7 in the place of the 4 of a random one.
        event := pg_catalog.encode(pg_catalog.set_bit(pg_catalog.set_bit(pg_catalog.overlay(
            pg_catalog.uuid_send(pg_catalog.gen_random_uuid()),
            pg_catalog.substring(pg_catalog.int8send(
                (pg_catalog.floor(EXTRACT(epoch FROM pg_catalog.clock_timestamp()) * 1000::numeric))::bigint), 3),
            1, 6), 52, 1), 53, 1), 'hex')::uuid::text;
    END IF;

    sum := postroom.content_digest(write.type, name, write.key, body, object, write.not_before);
    PERFORM postroom.check_event(write.source, event, sum, write.type, name, write.key, media, write.correlation_id,
        write.causation_id, pg_catalog.clock_timestamp(), write.occurred_at, write.not_before, write.trace_parent,
        write.trace_state, object, body);
    INSERT INTO postroom.outbox (source, event_id, digest, type, subject, key, content_type, correlation_id, causation_id,
                                 occurred_at, not_before, trace_parent, trace_state, headers, data, checked)
    VALUES (write.source, event, sum, write.type, name, write.key, media, write.correlation_id, write.causation_id,
            write.occurred_at, write.not_before, write.trace_parent, write.trace_state, object, body, true)
    ON CONFLICT (source, event_id) DO NOTHING;
    IF NOT FOUND THEN
        PERFORM postroom.refuse_conflict(write.source, ARRAY[event], ARRAY[sum]);
    END IF;
    RETURN event;
END
$$;

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
        'EXECUTE ON FUNCTION postroom.write, postroom.content_digest, postroom.refuse_conflict, postroom.check_event,
                             postroom.unchecked'
    ] LOOP
        EXECUTE pg_catalog.format('GRANT %s TO %s', permission, role);
    END LOOP;
END
$$;

-- Roles that may write events may go on in each way.
DO $$
DECLARE
    producer text;
BEGIN
    FOR producer IN
        SELECT CASE acl.grantee WHEN 0 THEN 'PUBLIC' ELSE acl.grantee::regrole::text END
        FROM pg_catalog.pg_attribute, pg_catalog.aclexplode(attacl) AS acl
        WHERE attrelid = 'postroom.outbox'::regclass AND attname = 'digest' AND acl.privilege_type = 'INSERT'
    LOOP
        EXECUTE pg_catalog.format('GRANT EXECUTE ON FUNCTION postroom.check_event, postroom.unchecked TO %s', producer);
    END LOOP;
END
$$;
