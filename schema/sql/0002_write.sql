-- The rest of the producer's side: events that are published later, and
-- functions for writers that do not use the Go package.
--
-- Additive: code of version 1 goes on writing and reading. Its relay publishes
-- a scheduled event at once, so upgrade relays before the first one is written.
--
-- The functions run with the rights of their caller (SECURITY INVOKER). None has
-- a SET search_path, which would cost each call a change of the setting and back.
-- Instead tables and functions are written with their schema in them; operators
-- get exactly the types that pg_catalog has them for, so that no other operator
-- on the caller's path is a better match.

-- Columns that had a CHECK of the table get a domain. The server reads a CHECK
-- of a table anew for each statement, and keeps those of a domain: the insert of
-- one event takes a quarter less of its time so. And a violated CHECK of a table
-- quotes the row, with its data, in the server's log; one of a domain does not.
--
-- Each domain is made without constraints, given to its columns, and gets them
-- then, NOT VALID: so no step rewrites or reads a large log while producers
-- wait. New rows are checked all the same; old ones were, by the table's CHECK.
CREATE DOMAIN postroom.digest AS bytea;
CREATE DOMAIN postroom.instant AS timestamptz;
CREATE DOMAIN postroom.media_type AS text;
CREATE DOMAIN postroom.trace_state AS text;
CREATE DOMAIN postroom.body AS bytea;

ALTER TABLE postroom.outbox
    DROP CONSTRAINT outbox_digest_check,
    DROP CONSTRAINT outbox_created_at_check,
    DROP CONSTRAINT outbox_content_type_check,
    DROP CONSTRAINT outbox_occurred_at_check,
    DROP CONSTRAINT outbox_trace_state_check,
    DROP CONSTRAINT outbox_data_check;
ALTER TABLE postroom.outbox
    ALTER COLUMN digest TYPE postroom.digest,
    ALTER COLUMN created_at TYPE postroom.instant,
    ALTER COLUMN content_type TYPE postroom.media_type,
    ALTER COLUMN occurred_at TYPE postroom.instant,
    ALTER COLUMN trace_state TYPE postroom.trace_state,
    ALTER COLUMN data TYPE postroom.body,
    ADD COLUMN not_before postroom.instant;
COMMENT ON COLUMN postroom.outbox.not_before IS
    'Publish when this database''s clock reaches it. NULL: at once. Such an event has no order among others of its key.';

ALTER DOMAIN postroom.digest ADD CONSTRAINT digest_length CHECK (octet_length(VALUE) = 16) NOT VALID;

-- A time that can be sent: of the years 1 to 9999, and so finite.
ALTER DOMAIN postroom.instant ADD CONSTRAINT instant_range
    CHECK (VALUE >= '0001-01-01 00:00:00+00' AND VALUE < '10000-01-01 00:00:00+00') NOT VALID;

-- A label, but not the media type of a message that is a whole event, which
-- would mislead its reader.
ALTER DOMAIN postroom.media_type ADD CONSTRAINT media_type_length CHECK (octet_length(VALUE) BETWEEN 1 AND 255) NOT VALID;
ALTER DOMAIN postroom.media_type ADD CONSTRAINT media_type_syntax CHECK (VALUE !~
    '[\u0001-\u001F\u007F-\u009F]|^[ \u00A0\u1680\u2000-\u200A\u2028\u2029\u202F\u205F\u3000]|[ \u00A0\u1680\u2000-\u200A\u2028\u2029\u202F\u205F\u3000]$') NOT VALID;
ALTER DOMAIN postroom.media_type ADD CONSTRAINT media_type_whole_event
    CHECK (NOT starts_with(lower(VALUE COLLATE "C"), 'application/cloudevents')) NOT VALID;

ALTER DOMAIN postroom.trace_state ADD CONSTRAINT trace_state_length CHECK (octet_length(VALUE) <= 512) NOT VALID;
ALTER DOMAIN postroom.trace_state ADD CONSTRAINT trace_state_syntax CHECK (VALUE !~
    '[\u0001-\u001F\u007F-\u009F]|^[ \u00A0\u1680\u2000-\u200A\u2028\u2029\u202F\u205F\u3000]|[ \u00A0\u1680\u2000-\u200A\u2028\u2029\u202F\u205F\u3000]$') NOT VALID;

ALTER DOMAIN postroom.body ADD CONSTRAINT body_length CHECK (octet_length(VALUE) <= 983040) NOT VALID;

-- First 16 bytes of SHA-256 over the content of an event: type, subject, key,
-- data, then name and value of each header in the order of the names' bytes,
-- each behind its length in 4 bytes. A time to publish at comes last, as '@' and
-- its microseconds since 1970: no header's name begins so. It is left out where
-- there is none. contentDigest in outbox/columns.go computes the same.
--
-- A header's value that is no text counts as it travels: as its JSON, and null
-- as nothing. An infinite time is left to the column's domain.
CREATE FUNCTION postroom.content_digest(type text, subject text, key text, data bytea, headers jsonb, not_before timestamptz)
RETURNS bytea
LANGUAGE plpgsql STABLE PARALLEL SAFE -- which keeps its plan; one in SQL is planned in each transaction
AS $$
BEGIN
    RETURN (SELECT pg_catalog.substring(pg_catalog.sha256(pg_catalog.string_agg(
        pg_catalog.int4send(pg_catalog.octet_length(field)) || field, ''::bytea
        ORDER BY place, name COLLATE pg_catalog."C", part)), 1, 16)
    FROM (
        SELECT 1 AS place, ''::text AS name, 1 AS part, pg_catalog.convert_to($1, 'UTF8') AS field
        UNION ALL
        SELECT 2, '', 1, pg_catalog.convert_to($2, 'UTF8')
        UNION ALL
        SELECT 3, '', 1, pg_catalog.convert_to(coalesce($3, ''), 'UTF8')
        UNION ALL
        SELECT 4, '', 1, $4
        UNION ALL
        SELECT 5, header.key, side.part, pg_catalog.convert_to(side.value, 'UTF8')
        FROM pg_catalog.jsonb_each($5) AS header,
             LATERAL (VALUES (1, header.key),
                             (2, CASE pg_catalog.jsonb_typeof(header.value)
                                     WHEN 'string' THEN header.value #>> '{}'::text[]
                                     WHEN 'null' THEN ''
                                     ELSE header.value::text
                                 END)) AS side (part, value)
        UNION ALL
        SELECT 6, '', 1, pg_catalog.convert_to(
            '@' || (EXTRACT(epoch FROM $6) * 1000000::numeric)::bigint::text, 'UTF8')
        WHERE pg_catalog.isfinite($6)
    ) AS content);
END
$$;
COMMENT ON FUNCTION postroom.content_digest(text, text, text, bytea, jsonb, timestamptz) IS
    'The digest column of an event: tells a repeated event from another event with the same id.';

-- Raise an error where one of the ids belongs to an event with another digest.
-- Called for events of which one was not inserted because its id is taken. The
-- row that took it may be invisible to the insert, whose snapshot is older than
-- that row's commit: a VOLATILE function's statements each take a new one.
--
-- SQLSTATE 23PR1 is of the class of integrity violations, and not 23505: code
-- that takes a unique violation for "it is there already" must not take this
-- for it. The detail holds the ids; there is no space in an id.
CREATE FUNCTION postroom.refuse_conflict(source text, ids text[], digests bytea[])
RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    others  text;
    missing bigint;
BEGIN
    SELECT pg_catalog.string_agg(given.id, ' '::text ORDER BY given.n) FILTER (WHERE there.digest <> given.digest),
           pg_catalog.count(*) FILTER (WHERE there.digest IS NULL)
    INTO others, missing
    FROM ROWS FROM (pg_catalog.unnest($2), pg_catalog.unnest($3)) WITH ORDINALITY AS given (id, digest, n)
    LEFT JOIN postroom.outbox AS there ON there.source::text = $1 AND there.event_id::text = given.id;

    IF others IS NOT NULL THEN
        RAISE EXCEPTION 'another event with this source and id exists'
            USING ERRCODE = '23PR1', DETAIL = 'Taken: ' || others, CONSTRAINT = 'outbox_event';
    ELSIF missing > 0 THEN
        RAISE EXCEPTION 'the event with this source and id was deleted while it was written again'
            USING ERRCODE = 'serialization_failure', HINT = 'Try the transaction again.';
    END IF;
END
$$;
COMMENT ON FUNCTION postroom.refuse_conflict(text, text[], bytea[]) IS
    'Raises SQLSTATE 23PR1 where one of the ids is that of an event with other content.';

-- Append an event and return its id.
--
--     SELECT postroom.write(source => '/shop', type => 'order.placed', data => '{"id": 7}', key => '7');
--
-- data is jsonb, json, text (both as they are written) or bytea. An event whose
-- source, id and content are in the log already is left as it is; with other
-- content that is SQLSTATE 23PR1. Faults are those of the columns' constraints.
CREATE FUNCTION postroom.write(
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
    INSERT INTO postroom.outbox (source, event_id, digest, type, subject, key, content_type, correlation_id, causation_id,
                                 occurred_at, not_before, trace_parent, trace_state, headers, data)
    VALUES (write.source, event, sum, write.type, name, write.key, coalesce(write.content_type, 'application/json'),
            write.correlation_id, write.causation_id, write.occurred_at, write.not_before, write.trace_parent,
            write.trace_state, object, body)
    ON CONFLICT (source, event_id) DO NOTHING;
    IF NOT FOUND THEN
        PERFORM postroom.refuse_conflict(write.source, ARRAY[event], ARRAY[sum]);
    END IF;
    RETURN event;
END
$$;
COMMENT ON FUNCTION postroom.write IS
    'Appends an event in the caller''s transaction and returns its id. For psql, triggers and other languages.';

-- Give a role what a producer needs, and no more: to append events, and to
-- compare the id and digest of one that is there. Not seq and xid, on which the
-- relay's order rests, nor created_at; not the content of events.
--
--     SELECT postroom.grant_producer('shop_app');
--
-- Call it as the owner of the tables; again after a migration.
CREATE FUNCTION postroom.grant_producer(role regrole)
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
                 not_before, trace_parent, trace_state, headers, data) ON postroom.outbox',
        'SELECT (source, event_id, digest) ON postroom.outbox',
        'SELECT ON postroom.migration', -- Outbox.Check
        'EXECUTE ON FUNCTION postroom.write, postroom.content_digest, postroom.refuse_conflict'
    ] LOOP
        EXECUTE pg_catalog.format('GRANT %s TO %s', permission, role);
    END LOOP;
END
$$;
COMMENT ON FUNCTION postroom.grant_producer(regrole) IS
    'Grants a role what it needs to write events, and no more. Call it as the owner of the tables, again after a migration.';
