-- The log, and the state of the relay: events that producers write, and the one row that says which
-- of these events are published.
--
-- Locks   nothing that is in use: every object is new.
-- Called  by Migrate and Print, as the first migration. In psql, paste version.sql and then the
--         files of this directory, in the order of their numbers, into one transaction.
--
-- Only its owner may execute a function of the schema, until a function grant_… gives a role
-- the right: PostgreSQL gives it to every role, and each function takes it back. A function has the
-- search path of its caller if it does not set one. Such a function calls the functions of
-- pg_catalog by their full names, or with exactly their types of arguments, so that no function of
-- another role on the caller's path is a better match.

-- Before the migrator runs this file, it creates the schema and the table migration
-- (schema/version.sql). This file creates both too, for a person who pastes it into psql.
DO $$
BEGIN
    IF to_regnamespace('postroom') IS NULL THEN
        CREATE SCHEMA postroom;
    END IF;
END $$;
CREATE TABLE IF NOT EXISTS postroom.migration (
    version     int         PRIMARY KEY,
    name        text        NOT NULL,
    serves_from int         NOT NULL,
    applied_at  timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE postroom.migration IS
    'The migrations of Postroom that were applied here. The transaction that applies a migration also adds its row.';
COMMENT ON COLUMN postroom.migration.version IS
    'The number of the migration.';
COMMENT ON COLUMN postroom.migration.name IS
    'The name of the migration''s file, without the number.';
COMMENT ON COLUMN postroom.migration.serves_from IS
    'A program can work with this version of the tables if the number of the newest migration that the program knows is at least serves_from.';

-- Two Postrooms in one database, in two schemas, have two identities. A copy of the database has
-- the identity of the original: change it before a program connects the copy to the broker.
CREATE TABLE postroom.instance (
    only_one   boolean     PRIMARY KEY DEFAULT true CHECK (only_one),
    id         uuid        NOT NULL DEFAULT gen_random_uuid(),
    created_at timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE postroom.instance IS
    'One row: the identity of this Postroom. The names of durable consumers and the keys that vendors get are derived from it.';
INSERT INTO postroom.instance DEFAULT VALUES;

--
-- The rules of an event
--
-- Event.Validate has the same rules in Go. check_event, below, applies the rules of this file to
-- events that were written in SQL. If an event breaks a rule, its transaction fails. Only an INSERT
-- that itself sets the column checked, to true or false, can avoid check_event. If the writer of
-- such an INSERT has not checked the row, a row that breaks a rule can get into the log.
--
-- The rules are constraints of domains, and no column of the log has one of these domains. If the
-- columns had them, the server would prepare the constraints of every column for each INSERT, even
-- if a column gets no value. That would be a third of the cost of an event, not counting the round
-- trip. The rules are not constraints of the table, because of the server's log file: if a row
-- violates a constraint of a table, the server writes the row, with the beginning of its data, to
-- that file. If a value violates a constraint of a domain, the server does not.
--
-- Only stored_headers is checked for every row. A constraint of the log casts the headers to this
-- domain, and the cast raises the error.
--
-- No role but the owner may use the domains in its own functions and operators: an operator for a
-- domain is a better match for a value of the domain than the operator of pg_catalog for its base
-- type. A cast, and a value in a query, need no right.
--
-- The patterns list characters by their Unicode numbers, because [[:space:]] and [[:cntrl:]] have
-- another meaning in each locale, and in the locale C they match only ASCII.

CREATE DOMAIN postroom.subject AS text
    CONSTRAINT subject_length CHECK (octet_length(VALUE) <= 255)
    CONSTRAINT subject_syntax CHECK (VALUE ~ '^[A-Za-z0-9_-]+([.][A-Za-z0-9_-]+)*$')
    --guard:no-sql-event-has-the-subject-of-a-lease 1 true
    CONSTRAINT subject_reserved CHECK (VALUE !~ '^[p]ostroom[.]lease[.]'); -- [p], because this is not the name of the schema
COMMENT ON DOMAIN postroom.subject IS
    'An event type or a NATS subject: tokens with single dots between them. It must not be a subject of the relay''s lease messages, because readers of a stream skip these.';

-- One comparison checks that the length is from 1 to 255: an oid has no sign, so 0 - 1 becomes the
-- largest oid. BETWEEN would need two comparisons, and would compute the length for each.
CREATE DOMAIN postroom.identifier AS text
    CONSTRAINT identifier_length CHECK ((octet_length(VALUE) - 1)::oid < 255::oid)
    CONSTRAINT identifier_syntax CHECK (VALUE !~
        '[#\u0001-\u0020\u007F-\u00A0\u1680\u2000-\u200A\u2028\u2029\u202F\u205F\u3000]');
COMMENT ON DOMAIN postroom.identifier IS
    'An event id or a source. It must not contain "#", which is between source and id in a message id, or a space, which is between them in a dedupe key.';

CREATE DOMAIN postroom.label AS text
    CONSTRAINT label_length CHECK ((octet_length(VALUE) - 1)::oid < 255::oid)
    CONSTRAINT label_syntax CHECK (VALUE !~
        '[\u0001-\u001F\u007F-\u009F]|^[ \u00A0\u1680\u2000-\u200A\u2028\u2029\u202F\u205F\u3000]|[ \u00A0\u1680\u2000-\u200A\u2028\u2029\u202F\u205F\u3000]$');
COMMENT ON DOMAIN postroom.label IS
    'A text that is sent as the value of a message header.';

CREATE DOMAIN postroom.media_type AS text
    CONSTRAINT media_type_length CHECK ((octet_length(VALUE) - 1)::oid < 255::oid)
    CONSTRAINT media_type_syntax CHECK (VALUE !~
        '[\u0001-\u001F\u007F-\u009F]|^[ \u00A0\u1680\u2000-\u200A\u2028\u2029\u202F\u205F\u3000]|[ \u00A0\u1680\u2000-\u200A\u2028\u2029\u202F\u205F\u3000]$')
    CONSTRAINT media_type_whole_event CHECK (NOT starts_with(lower(VALUE COLLATE "C"), 'application/cloudevents'));
COMMENT ON DOMAIN postroom.media_type IS
    'A content type. It must not begin with application/cloudevents, because readers would take the data for a complete event.';

CREATE DOMAIN postroom.trace_state AS text
    CONSTRAINT trace_state_length CHECK (octet_length(VALUE) <= 512)
    CONSTRAINT trace_state_syntax CHECK (VALUE !~
        '[\u0001-\u001F\u007F-\u009F]|^[ \u00A0\u1680\u2000-\u200A\u2028\u2029\u202F\u205F\u3000]|[ \u00A0\u1680\u2000-\u200A\u2028\u2029\u202F\u205F\u3000]$');
COMMENT ON DOMAIN postroom.trace_state IS
    'The W3C header tracestate.';

CREATE DOMAIN postroom.instant AS timestamptz
    CONSTRAINT instant_range CHECK (VALUE <@ tstzrange('0001-01-01 00:00:00+00', '10000-01-01 00:00:00+00'));
COMMENT ON DOMAIN postroom.instant IS
    'A time in the years 1 to 9999, which every program can read. It is never infinite.';

CREATE DOMAIN postroom.body AS bytea
    CONSTRAINT body_length CHECK (octet_length(VALUE) <= 983040);
COMMENT ON DOMAIN postroom.body IS
    'The data of an event: at most 960 KiB.';

CREATE DOMAIN postroom.digest AS bytea
    CONSTRAINT digest_length CHECK (octet_length(VALUE) = 16);
COMMENT ON DOMAIN postroom.digest IS
    'The first 16 bytes of a SHA-256.';

-- The log accepts no other headers, also in a row that says that it is checked: a relay reads headers
-- before it checks the event. Other JSON can be small in the table and cost much to read. It may be
-- nested so deeply that a search in it fails, or have numbers of 131,072 digits. A text can be
-- compressed to a hundredth of its size.
--
-- No event that Event.Validate accepts has larger headers. It has at most 32,768 bytes of names and
-- values, and 64 headers. The text of the JSON has 8 bytes more for each header, and a backslash
-- before each quote and each backslash; no other character of such an event is escaped. So its
-- headers have at most 2 × 32,768 + 64 × 8 bytes. The size is that of the text, so compression does
-- not change it. Decompressed, an object of texts is at most a few bytes larger than its text.
--
-- The server checks the constraints in the order of their names, so it makes a text only of an object
-- of texts.
-- The path function gets silent = true, so that it raises no error for a value that is not an object.
CREATE DOMAIN postroom.stored_headers AS jsonb
    CONSTRAINT headers_form CHECK (jsonb_typeof(VALUE) = 'object')
    --guard:headers-of-the-log-are-texts 1 true
    CONSTRAINT headers_strings CHECK (NOT jsonb_path_exists(VALUE, 'strict $.* ? (@.type() != "string")', '{}', true))
    --guard:headers-of-the-log-are-small 1 true
    CONSTRAINT headers_text CHECK (octet_length(VALUE::text) <= 66048);
COMMENT ON DOMAIN postroom.stored_headers IS
    'Headers that the log can store, of any event: an object with texts as values, whose JSON has at most 66,048 bytes.';

-- Some names have a meaning for the broker, CloudEvents or Postroom. With such a name a header
-- could purge a stream or forge an identity.
CREATE DOMAIN postroom.headers AS postroom.stored_headers
    CONSTRAINT headers_count CHECK (
        jsonb_array_length(jsonb_path_query_array(VALUE, 'strict $.keyvalue()', '{}', true)) <= 64)
    CONSTRAINT headers_names CHECK (NOT jsonb_path_exists(VALUE,
        'strict $.keyvalue().key ? (!(@ like_regex "^[A-Za-z0-9_-]+$")
            || @ like_regex "^(nats-|ce-|postroom-|(traceparent|tracestate|content-type|status|description)$)" flag "i")',
        '{}', true))
    CONSTRAINT headers_name_length CHECK (octet_length(VALUE::text) <= 128 -- so that the slow pattern is only used for longer headers
        OR NOT jsonb_path_exists(VALUE, 'strict $.keyvalue().key ? (@ like_regex "^.{129}")', '{}', true))
    CONSTRAINT headers_case CHECK ( -- in lower case, two names that differ only in case become one name
        jsonb_array_length(jsonb_path_query_array(lower(VALUE::text COLLATE "C")::jsonb, 'strict $.keyvalue()', '{}', true))
        = jsonb_array_length(jsonb_path_query_array(VALUE, 'strict $.keyvalue()', '{}', true)))
    CONSTRAINT headers_values CHECK (NOT jsonb_path_exists(VALUE,
        'strict $.* ? (@ like_regex
            "[\\u0001-\\u001F\\u007F-\\u009F]|^[ \\u00A0\\u1680\\u2000-\\u200A\\u2028\\u2029\\u202F\\u205F\\u3000]|[ \\u00A0\\u1680\\u2000-\\u200A\\u2028\\u2029\\u202F\\u205F\\u3000]$")',
        '{}', true))
    -- The size of all names and values together. The text of the JSON has 8 bytes more for each
    -- header, and a backslash before each quote and each backslash.
    CONSTRAINT headers_size CHECK (octet_length(VALUE::text) <= 32768
        OR octet_length(regexp_replace(VALUE::text, '\\(.)', '\1', 'g'))
            - 8 * jsonb_array_length(jsonb_path_query_array(VALUE, 'strict $.keyvalue()', '{}', true)) <= 32768);
--guard:the-types-are-for-the-owner remove
REVOKE ALL ON DOMAIN postroom.subject, postroom.identifier, postroom.label, postroom.media_type, postroom.trace_state, postroom.instant, postroom.body, postroom.digest, postroom.stored_headers, postroom.headers FROM PUBLIC;
COMMENT ON DOMAIN postroom.headers IS
    'The headers that the writer of an event gave it.';

-- A cast to a domain raises an error if the value breaks a rule of the domain. With num_nulls, one
-- expression evaluates all casts. The function does not use the result. It assigns the result to a
-- variable, because PL/pgSQL evaluates an assignment without a separate plan.
CREATE FUNCTION postroom.check_event(
    source text, event_id text, digest bytea, type text, subject text, key text, content_type text, correlation_id text,
    causation_id text, created_at timestamptz, occurred_at timestamptz, not_before timestamptz, trace_parent text,
    trace_state text, headers jsonb, data bytea
) RETURNS void
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    nulls int;
BEGIN
    nulls := pg_catalog.num_nulls(
        $1::postroom.identifier, $2::postroom.identifier, $3::postroom.digest,
        $4::postroom.subject, $5::postroom.subject,
        $6::postroom.label, $7::postroom.media_type,
        $8::postroom.label, $9::postroom.label,
        $10::postroom.instant, $11::postroom.instant, $12::postroom.instant,
        $13::postroom.label, $14::postroom.trace_state, $16::postroom.body);
    IF $15 IS NOT NULL THEN
        nulls := pg_catalog.num_nulls($15::postroom.headers);
    END IF;
END
$$;
REVOKE ALL ON FUNCTION postroom.check_event FROM PUBLIC; -- write and check_unchecked call it
COMMENT ON FUNCTION postroom.check_event IS
    'Internal. Raises an error if an event breaks a rule: SQLSTATE 23514, with the name of the constraint of the domain.';

--
-- The log
--

CREATE TABLE postroom.outbox (
    seq            bigint      GENERATED ALWAYS AS IDENTITY (CACHE 1) PRIMARY KEY,
    xid            xid8        NOT NULL DEFAULT pg_current_xact_id(),
    created_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    digest         bytea       NOT NULL,
    source         text        COLLATE "C" NOT NULL,
    event_id       text        COLLATE "C" NOT NULL,
    type           text        NOT NULL,
    subject        text        NOT NULL,
    key            text,
    content_type   text        NOT NULL DEFAULT 'application/json',
    correlation_id text,
    causation_id   text        COLLATE "C",
    occurred_at    timestamptz,
    trace_parent   text,
    trace_state    text,
    headers        jsonb,
    data           bytea       NOT NULL,
    not_before     timestamptz,
    checked        boolean     NOT NULL, -- its default is a function, which is set below

    -- Writing the same event again does nothing; see outbox/sql/write.sql.
    CONSTRAINT outbox_event UNIQUE (source, event_id),

    -- The cast raises an error; the comparison is always true. A column of the domain would cost as
    -- much, but the drivers of producers do not know the domain as the type of a parameter.
    --guard:every-row-has-headers-that-a-relay-can-read 1 true
    CONSTRAINT outbox_headers CHECK (headers IS NULL OR headers::postroom.stored_headers IS NOT NULL)
) WITH (
    -- Rows are inserted and, much later, removed. The server's default thresholds grow with the
    -- table. With these settings, the visibility map and the statistics stay fresh even if the log
    -- is large.
    autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 100000,
    autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 50000,
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000
);
COMMENT ON TABLE postroom.outbox IS
    'The log of events. Producers insert rows in their transactions, the relay publishes them, retention removes them. No row is ever updated: the table relay says which events are published.';
COMMENT ON COLUMN postroom.outbox.seq IS
    'Orders the events of a key. It is not the order of commits: a lower seq can become visible after a higher one.';
COMMENT ON COLUMN postroom.outbox.xid IS
    'The top-level transaction that wrote the row. The system column xmin cannot take the place of this column: inside a savepoint, xmin is the id of the subtransaction.';
COMMENT ON COLUMN postroom.outbox.created_at IS
    'When the row was written, by the clock of this database. The header postroom-logged-at of the message has this time, or not_before if not_before is later. After a replay with --as-new, the header has the time of the replay.';
COMMENT ON COLUMN postroom.outbox.digest IS
    'The result of content_digest for the event. It distinguishes a repeated event from another event with the same id.';
COMMENT ON COLUMN postroom.outbox.source IS
    'The service that wrote the event. An id is unique within its source.';
COMMENT ON COLUMN postroom.outbox.type IS
    'The kind of the event, such as order.placed.';
COMMENT ON COLUMN postroom.outbox.subject IS
    'The NATS subject that the event is published to. Usually it is the type.';
COMMENT ON COLUMN postroom.outbox.key IS
    'The thing that the event is about. Events of a key are published in the order of seq.';
COMMENT ON COLUMN postroom.outbox.content_type IS
    'The media type of data.';
COMMENT ON COLUMN postroom.outbox.correlation_id IS
    'An id that all events of a business process share.';
COMMENT ON COLUMN postroom.outbox.causation_id IS
    'The id of the event that caused this one.';
COMMENT ON COLUMN postroom.outbox.occurred_at IS
    'When the event happened, if the producer says so. NULL: consumers get the time of the header postroom-logged-at as the time of the event.';
COMMENT ON COLUMN postroom.outbox.trace_parent IS
    'The traceparent of the operation that wrote the event, as W3C Trace Context defines it; trace_state is its tracestate.';
COMMENT ON COLUMN postroom.outbox.headers IS
    'Message headers that the producer gave the event: an object with texts as values.';
COMMENT ON COLUMN postroom.outbox.data IS
    'The body of the event.';
COMMENT ON COLUMN postroom.outbox.not_before IS
    'The event is published when the clock of this database reaches this time. NULL: the event is published at once. No order is promised between a scheduled event and other events of its key.';
COMMENT ON COLUMN postroom.outbox.checked IS
    'true: the writer has checked the event against the rules, as the Go package and postroom.write do. The default is false, and makes the database check the row when its transaction commits. If an INSERT itself sets true, only the relay checks the row. If it sets false, the database checks the row only if the transaction also inserts a row with the default.';

-- The relay uses this index to find rows that became visible late: see late_by_xid.sql and pass.sql
-- in internal/pglog/sql.
CREATE INDEX outbox_xid_seq ON postroom.outbox (xid, seq);

-- Operators ask which events an event caused. An event without a cause has no entry in the index.
CREATE INDEX outbox_causation ON postroom.outbox (causation_id) WHERE causation_id IS NOT NULL;

--
-- Events that were inserted into outbox directly
--
-- If a writer gives no value for checked, the database checks the row when its transaction commits.
-- The default of the column is a function that arranges this check. The default costs nothing if
-- the writer gives a value. A trigger of the log would cost each INSERT 5 µs, even if the row needs
-- no check.

CREATE TABLE postroom.unchecked (
    xid xid8 PRIMARY KEY
);
COMMENT ON TABLE postroom.unchecked IS
    'A row for each open transaction that has inserted unchecked events. The transaction removes the row when it commits, so no other transaction ever sees the row.';
COMMENT ON COLUMN postroom.unchecked.xid IS
    'The id of the transaction, as in outbox.';

-- This function runs with the rights of the tables' owner, because a producer cannot read the log.
-- The search path is set, so that no SQL operator of the caller runs with these rights. On a table
-- of another role, NEW.xid could have a type of this role, and a cast to xid8 that is a function of
-- this role.
CREATE FUNCTION postroom.check_unchecked()
RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER
--guard:the-check-of-plain-inserts-uses-no-operator-of-the-writer remove
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    --guard:a-check-is-the-trigger-of-one-table false
    IF TG_RELID <> 'postroom.unchecked'::regclass::oid THEN
        RAISE EXCEPTION 'check_unchecked is a trigger of the table unchecked, and of no other' USING ERRCODE = 'trigger_protocol_violated';
    END IF;
    PERFORM postroom.check_event(o.source, o.event_id, o.digest, o.type, o.subject, o.key, o.content_type, o.correlation_id,
        o.causation_id, o.created_at, o.occurred_at, o.not_before, o.trace_parent, o.trace_state, o.headers, o.data)
    FROM postroom.outbox AS o
    --guard:unchecked-rows-are-checked-at-the-end false
    WHERE o.xid = NEW.xid AND NOT o.checked;
    --guard:unchecked-rows-leave-no-trace remove
    DELETE FROM postroom.unchecked AS u WHERE u.xid = NEW.xid;
    RETURN NULL;
END
$$;
--guard:trigger-functions-are-for-the-owner remove
REVOKE ALL ON FUNCTION postroom.check_unchecked() FROM PUBLIC; -- a trigger needs no right to run, only its creator does
COMMENT ON FUNCTION postroom.check_unchecked() IS
    'Internal. Trigger of unchecked: when a transaction commits, checks the events that the transaction inserted into outbox directly.';
CREATE CONSTRAINT TRIGGER unchecked_rows AFTER INSERT ON postroom.unchecked
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION postroom.check_unchecked();

-- If constraints are immediate, the trigger runs before the event's row exists. The second EXISTS
-- notices that, because the trigger has removed the row that the function inserted into unchecked.
CREATE FUNCTION postroom.unchecked()
RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
--guard:the-default-of-checked-uses-no-operator-of-the-writer remove
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF EXISTS (SELECT FROM postroom.unchecked AS u WHERE u.xid = pg_current_xact_id()) THEN
        RETURN false;
    END IF;
    INSERT INTO postroom.unchecked (xid) VALUES (pg_current_xact_id());
    --guard:unchecked-rows-under-immediate-constraints false
    IF NOT EXISTS (SELECT FROM postroom.unchecked AS u WHERE u.xid = pg_current_xact_id()) THEN
        RAISE EXCEPTION 'an event that is inserted into outbox directly is checked at the end of its transaction, and constraints are immediate in this one'
            USING ERRCODE = 'object_not_in_prerequisite_state',
                HINT = 'Call postroom.write, or SET CONSTRAINTS ALL DEFERRED before the INSERT.';
    END IF;
    RETURN false;
END
$$;
REVOKE ALL ON FUNCTION postroom.unchecked() FROM PUBLIC; -- each INSERT of a producer calls it that gives no value for checked
COMMENT ON FUNCTION postroom.unchecked() IS
    'Internal. The default of outbox.checked: returns false, and makes the transaction check the event before it commits.';
ALTER TABLE postroom.outbox ALTER COLUMN checked SET DEFAULT postroom.unchecked();

--
-- Functions for producers
--
-- These functions run with the rights of their caller. They have no SET search_path, because each
-- call would change the setting and change it back. Instead, they name tables and functions with
-- their schema. Each SQL operator gets exactly the types for which pg_catalog has an operator, so
-- that no operator on the caller's path is a better match.

-- The SHA-256 is computed over these fields: type, subject, key, data, and then the name and the
-- value of each header, in the order of the names' bytes. Before each field comes its length, in 4
-- bytes. If the event is scheduled, the last field is its time: "@" and the microseconds since
-- 1970. No header's name begins with "@". Digest in internal/wire computes the same digest.
--
-- The digest leaves out an infinite time, because check_event refuses it.
--
-- The function is in PL/pgSQL, which keeps its plan. The server would plan a function in SQL in
-- each transaction.
CREATE FUNCTION postroom.content_digest(type text, subject text, key text, data bytea, headers jsonb, not_before timestamptz)
RETURNS bytea
LANGUAGE plpgsql STABLE PARALLEL SAFE
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
        FROM pg_catalog.jsonb_each_text($5) AS header,
             LATERAL (VALUES (1, header.key), (2, header.value)) AS side (part, value)
        UNION ALL
        SELECT 6, '', 1, pg_catalog.convert_to(
            '@' || (EXTRACT(epoch FROM $6) * 1000000::numeric)::bigint::text, 'UTF8')
        WHERE pg_catalog.isfinite($6)
    ) AS content);
END
$$;
REVOKE ALL ON FUNCTION postroom.content_digest FROM PUBLIC; -- write calls it
COMMENT ON FUNCTION postroom.content_digest(text, text, text, bytea, jsonb, timestamptz) IS
    'Returns the digest of an event''s content: the first 16 bytes of a SHA-256.';

-- A writer calls this if an event was not inserted because its id is taken. The row with this id
-- may be invisible to the INSERT, because the snapshot of the INSERT is older than the commit of
-- that row. This function sees the row, because each statement of a VOLATILE function takes a new
-- snapshot.
--
-- SQLSTATE 23PR1 is in the class of integrity violations. It is not 23505 (unique violation),
-- because some programs read 23505 as "the row exists already" and go on. The detail lists the
-- ids, with spaces between them: no id has a space.
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
    LEFT JOIN postroom.outbox AS there ON there.source = $1 AND there.event_id = given.id;

    IF others IS NOT NULL THEN
        RAISE EXCEPTION 'another event with this source and id exists'
            USING ERRCODE = '23PR1', DETAIL = 'Taken: ' || others, CONSTRAINT = 'outbox_event';
    --guard:a-deleted-twin-is-written-again false
    ELSIF missing > 0 THEN
        RAISE EXCEPTION 'the event with this source and id was deleted while it was written again'
            USING ERRCODE = 'serialization_failure', HINT = 'Try the transaction again.';
    END IF;
END
$$;
REVOKE ALL ON FUNCTION postroom.refuse_conflict FROM PUBLIC; -- producers call it
COMMENT ON FUNCTION postroom.refuse_conflict(text, text[], bytea[]) IS
    'Internal. Raises SQLSTATE 23PR1 if one of the ids belongs to an event with other content. Raises 40001 (serialization failure) if the log has no event with one of the ids, because the event was deleted meanwhile.';

--     SELECT postroom.write(source => '/shop', type => 'order.placed', data => '{"id": 7}', key => '7');
--
-- data is jsonb, json, text or bytea. The function stores json and text as the caller wrote them.
-- If the content type is that of JSON, text and bytea must be JSON, or empty: otherwise the function
-- fails with SQLSTATE 23514 and the constraint data_json.
-- If the log has an event with this source and id, and with the same content, nothing happens. If
-- the log has an event with this source and id, and with different content, the function fails with
-- SQLSTATE 23PR1. If the event breaks a rule, the function fails with the SQLSTATE of check_event.
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
    object jsonb := nullif(write.headers, '{}'::jsonb);
    name   text  := coalesce(write.subject, write.type);
    media  text  := coalesce(write.content_type, 'application/json');
    format text  := pg_catalog.lower(pg_catalog.btrim(pg_catalog.split_part(media, ';', 1)));
    event  text  := write.id;
    sum    bytea;
    state  text  := CASE WHEN write.trace_parent <> '' THEN write.trace_state END; -- W3C Trace Context, section 3.3
BEGIN
    IF object IS NOT NULL THEN
        object := object::postroom.headers; -- before content_digest reads it
    END IF;
    --guard:write-uses-no-operator-of-another = pg_catalog.pg_typeof(write.data) = 'pg_catalog.bytea'::regtype
    IF pg_catalog.pg_typeof(write.data)::oid = 'pg_catalog.bytea'::regtype::oid THEN -- as oid, because regtype has no operator of its own
        body := write.data;
    ELSIF pg_catalog.pg_typeof(write.data)::oid IN ('pg_catalog.jsonb'::regtype::oid, 'pg_catalog.json'::regtype::oid,
            'pg_catalog.text'::regtype::oid, 'pg_catalog.varchar'::regtype::oid) THEN
        body := pg_catalog.convert_to(write.data::text, 'UTF8');
    ELSE
        RAISE EXCEPTION 'data is %, want jsonb, json, text or bytea', pg_catalog.pg_typeof(write.data)
            USING ERRCODE = 'datatype_mismatch';
    END IF;

    IF event IS NULL THEN
        -- RFC 9562: a random UUID with 48 bits of milliseconds at the front, and 7 as its version.
        event := pg_catalog.encode(pg_catalog.set_bit(pg_catalog.set_bit(pg_catalog.overlay(
            pg_catalog.uuid_send(pg_catalog.gen_random_uuid()),
            pg_catalog.substring(pg_catalog.int8send(
                (pg_catalog.floor(EXTRACT(epoch FROM pg_catalog.clock_timestamp()) * 1000::numeric))::bigint), 3),
            1, 6), 52, 1), 53, 1), 'hex')::uuid::text;
    END IF;

    sum := postroom.content_digest(write.type, name, write.key, body, object, write.not_before);
    PERFORM postroom.check_event(write.source, event, sum, write.type, name, write.key, media, write.correlation_id,
        write.causation_id, pg_catalog.clock_timestamp(), write.occurred_at, write.not_before, write.trace_parent,
        state, object, body);
    -- The block hides the server's own error, because it quotes the data. Empty data is no data.
    --guard:write-refuses-text-that-is-no-json false
    IF body <> '' AND (format = 'application/json' OR pg_catalog.right(format, 5) = '+json')
       AND pg_catalog.pg_typeof(write.data)::oid NOT IN ('pg_catalog.jsonb'::regtype::oid, 'pg_catalog.json'::regtype::oid) THEN
        BEGIN
            PERFORM pg_catalog.convert_from(body, 'UTF8')::pg_catalog.json;
        EXCEPTION WHEN invalid_text_representation OR character_not_in_repertoire OR statement_too_complex THEN
            RAISE EXCEPTION 'data is not JSON, and the content type is %', media
                USING ERRCODE = 'check_violation', CONSTRAINT = 'data_json',
                      HINT = 'Pass JSON, for instance to_jsonb(...), or say what data is with content_type, such as text/plain.';
        END;
    END IF;
    INSERT INTO postroom.outbox (source, event_id, digest, type, subject, key, content_type, correlation_id, causation_id,
                                 occurred_at, not_before, trace_parent, trace_state, headers, data, checked)
    VALUES (write.source, event, sum, write.type, name, write.key, media, write.correlation_id, write.causation_id,
            write.occurred_at, write.not_before, write.trace_parent, state, object, body, true)
    ON CONFLICT (source, event_id) DO NOTHING;
    IF NOT FOUND THEN
        PERFORM postroom.refuse_conflict(write.source, ARRAY[event], ARRAY[sum]);
    END IF;
    RETURN event;
END
$$;
REVOKE ALL ON FUNCTION postroom.write FROM PUBLIC; -- producers call it
COMMENT ON FUNCTION postroom.write IS
    'Appends an event in the caller''s transaction, and returns the id of the event. The function is for psql, triggers and languages other than Go.';

--
-- Which events are published
--

CREATE TABLE postroom.relay (
    only_one   boolean        PRIMARY KEY DEFAULT true CHECK (only_one),

    -- The lease. Its times are by the clock of this database.
    epoch      bigint         NOT NULL DEFAULT 0,
    owner      text,
    expires_at timestamptz    NOT NULL DEFAULT '-infinity',
    lease      interval       NOT NULL DEFAULT '0',

    -- Every event with seq <= high whose transaction is visible in snap is published, held or in
    -- archive, except those in pending.
    high       bigint         NOT NULL DEFAULT 0,
    floor      bigint         NOT NULL DEFAULT 0,
    snap       pg_snapshot    NOT NULL DEFAULT pg_current_snapshot(),
    pending    int8multirange NOT NULL DEFAULT '{}',
    cluster    bigint         NOT NULL,
    timeline   int            NOT NULL DEFAULT 0,
    streams    jsonb          NOT NULL DEFAULT '{}', -- in this row, because the positions in the streams must change together with the other columns

    -- How far the relay has caught up with a long backlog. Meanwhile snap stays as it is, or pending,
    -- so that no recording is as large as the backlog.
    catch_up_snap   pg_snapshot,
    catch_up_passed bigint         NOT NULL DEFAULT 0,
    catch_up_open   int8multirange NOT NULL DEFAULT '{}'
) WITH (fillfactor = 20); -- leaves room on the page for updates without index entries (HOT), because the relay updates the row 50 times a second
COMMENT ON TABLE postroom.relay IS
    'One row: which relay leads, and which events of the log are published. Every event with seq <= high whose transaction is visible in snap is published, is in held or is in archive, except those in pending.';
COMMENT ON COLUMN postroom.relay.epoch IS
    'Rises each time a relay takes the lease. A write with an older epoch changes nothing.';
COMMENT ON COLUMN postroom.relay.owner IS
    'The relay that leads, until expires_at. NULL: no relay leads.';
COMMENT ON COLUMN postroom.relay.expires_at IS
    'When the lease of owner ends, if owner does not renew it.';
COMMENT ON COLUMN postroom.relay.lease IS
    'How long the lease lasts after each renewal. If expires_at is later than that from now, the clock was set back.';
COMMENT ON COLUMN postroom.relay.high IS
    'The events of the log up to this seq are published, in held or in archive, except late events and those in pending. The value never becomes smaller.';
COMMENT ON COLUMN postroom.relay.floor IS
    'The relay never looks for events up to this seq by their transaction ids, because these ids are from another server: the log was dumped and restored, or moved by logical replication. 0: there are no such events.';
COMMENT ON COLUMN postroom.relay.snap IS
    'A snapshot in which the relay read the log. If an event up to high is not visible in this snapshot, the event is late, and the relay looks for it. While nothing is published, the snapshot may be older than the last reading.';
COMMENT ON COLUMN postroom.relay.pending IS
    'Events up to high that the relay still has to publish or to hold: events that the broker has not acknowledged, late events, and events that the broker has lost.';
COMMENT ON COLUMN postroom.relay.cluster IS
    'The system identifier of the database cluster in which snap was taken. If the cluster that has this database now has another identifier, the database was moved: its rows have transaction ids of another cluster.';
COMMENT ON COLUMN postroom.relay.timeline IS
    'The timeline of the server on which a relay last took the lease. After a failover it is lower than that of the server. If transaction ids of the log are ahead of the server too, the log was moved here from another server.';
COMMENT ON COLUMN postroom.relay.streams IS
    'An entry for each stream, under the name of the stream: when the stream was created, and the sequence and the message id of the last message that the broker acknowledged to a relay. If the relay could not compare the stream with that message, next_seq and next_id are those of a message that was acknowledged later.';
COMMENT ON COLUMN postroom.relay.catch_up_snap IS
    'NULL: the relay does not catch up. Otherwise it publishes the late events that became visible between snap and this snapshot, or pending if the two are equal, in the order of seq.';
COMMENT ON COLUMN postroom.relay.catch_up_passed IS
    'While the relay catches up: the events of the backlog up to this seq were read. They are published, in held or in archive, except those in pending, or in catch_up_open if the backlog is pending. Retention does not use this column: for it, none of the backlog is published yet.';
COMMENT ON COLUMN postroom.relay.catch_up_open IS
    'While the relay catches up with pending: the events up to high that it still has to publish or to hold, besides the rest of pending.';
INSERT INTO postroom.relay (cluster) SELECT system_identifier FROM pg_control_system();

-- The rows of a restored log have transaction ids of another cluster. So the relay does not look
-- for rows up to floor by their transaction ids. If a TRUNCATE empties the log, the sequence may
-- begin again. Then new rows below the old floor have transaction ids of this cluster. If the old
-- floor stayed, the relay would never find a new row below it that becomes visible late. The
-- trigger also raises the epoch: the relay that leads loses its lease, and the next term reads the
-- new floor.
CREATE FUNCTION postroom.log_truncated()
RETURNS trigger
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF TG_RELID <> 'postroom.outbox'::regclass::oid THEN
        RAISE EXCEPTION 'log_truncated is a trigger of the table outbox, and of no other' USING ERRCODE = 'trigger_protocol_violated';
    END IF;
    UPDATE postroom.relay
    --guard:a-truncated-log-has-no-floor 1 remove
    --guard:a-truncated-log-ends-the-term 2 remove
    SET floor = 0, epoch = epoch + 1
    WHERE floor > 0;
    RETURN NULL;
END
$$;
REVOKE ALL ON FUNCTION postroom.log_truncated() FROM PUBLIC; -- a trigger needs no right to run, only its creator does
COMMENT ON FUNCTION postroom.log_truncated() IS
    'Internal. Trigger of outbox: if a TRUNCATE empties the log of a restored database, resets relay.floor, because the old value would hide new events. It runs with the rights of the role that empties the log.';
CREATE TRIGGER outbox_truncated AFTER TRUNCATE ON postroom.outbox
    FOR EACH STATEMENT EXECUTE FUNCTION postroom.log_truncated();

CREATE TABLE postroom.relay_checkpoint (
    id      bigint         GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at      timestamptz    NOT NULL DEFAULT clock_timestamp(),
    streams jsonb          NOT NULL,
    high    bigint         NOT NULL,
    floor   bigint         NOT NULL,
    snap    pg_snapshot    NOT NULL,
    pending int8multirange NOT NULL,
    published_held int8multirange NOT NULL DEFAULT '{}'
);
COMMENT ON TABLE postroom.relay_checkpoint IS
    'Copies of the row of relay. While the relay publishes events, it makes a copy every ten seconds, and removes the copies that are older than an hour. If a stream has lost all messages after some message, the relay finds here which events were published after that message.';
COMMENT ON COLUMN postroom.relay_checkpoint.at IS
    'When the checkpoint was made.';
COMMENT ON COLUMN postroom.relay_checkpoint.published_held IS
    'Events that were published from held, or again for a republish, after this checkpoint and before the next one.';

-- The table has no constraints besides its types and its key, because only people read the rows,
-- and a bad row must not prevent the relay from recording published events.
CREATE TABLE postroom.refused (
    seq      bigint PRIMARY KEY,
    failures jsonb  NOT NULL
);
COMMENT ON TABLE postroom.refused IS
    'Events of the log that were published after one or more failures. Retention removes a row together with the row of the log.';
COMMENT ON COLUMN postroom.refused.seq IS
    'The seq of the event in outbox.';
COMMENT ON COLUMN postroom.refused.failures IS
    'The last ten failures of the event, copied from held: each with at, class and text.';

CREATE TABLE postroom.republish (
    id         bigint         GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    created_at timestamptz    NOT NULL DEFAULT now(),
    actor      text           NOT NULL CHECK (octet_length(actor) BETWEEN 1 AND 255),
    reason     text           NOT NULL DEFAULT '' CHECK (octet_length(reason) <= 4096),
    kind       text           NOT NULL CHECK (kind IN ('range', 'reconcile')),

    -- Which events
    since      timestamptz    CHECK (isfinite(since)),
    until      timestamptz    CHECK (isfinite(until)),
    types      text[]         CHECK (array_position(types, NULL) IS NULL),
    keys       text[]         CHECK (array_position(keys, NULL) IS NULL),
    lo         bigint         NOT NULL,
    hi         bigint         NOT NULL,
    seqs       int8multirange,
    events     bigint         NOT NULL CHECK (events >= 0),
    --guard:a-republish-has-a-finite-rate 1.2 true
    rate       float8         NOT NULL CHECK (rate > 0 AND rate < 'infinity'), -- NaN is greater than infinity
    digest     text           COLLATE "C" NOT NULL CHECK (octet_length(digest) BETWEEN 1 AND 64),

    -- Its progress
    state      text           NOT NULL DEFAULT 'running' CHECK (state IN ('running', 'done', 'cancelled')),
    passed     bigint         NOT NULL,
    pending    int8multirange NOT NULL DEFAULT '{}',
    published  bigint         NOT NULL DEFAULT 0,
    skipped    bigint         NOT NULL DEFAULT 0,
    held       bigint         NOT NULL DEFAULT 0,
    ended_at   timestamptz,
    CHECK ((state = 'running') = (ended_at IS NULL)),

    -- In the years 1 to 9999, as JSON has it: one odd row must not take the list from operators.
    --guard:republishes-have-times-that-tools-can-print 1 true
    CONSTRAINT republish_times CHECK (least(created_at, since, until, ended_at) >= '0001-01-01 00:00:00+00' AND greatest(created_at, since, until, ended_at) < '10000-01-01 00:00:00+00'),

    -- The relay computes with these seqs, and larger ones would overflow.
    --guard:the-seqs-of-a-republish-are-bounded 1 true
    CONSTRAINT republish_range CHECK (passed <= hi AND hi < 4611686018427387904 AND pending <@ int8range(1, hi + 1) AND seqs <@ int8range(1, hi + 1))
);
COMMENT ON TABLE postroom.republish IS
    'Orders to publish events of the log again. The leading relay carries out one order after the other, beside live events. The messages get new message ids, so that the broker does not drop them as duplicates.';
COMMENT ON COLUMN postroom.republish.kind IS
    'range: a range of the log. reconcile: the events that a comparison of log and streams found missing.';
COMMENT ON COLUMN postroom.republish.since IS
    'Only events that were written at this time or later. In this column and in until, types and keys, NULL means no limit.';
COMMENT ON COLUMN postroom.republish.until IS
    'Only events that were written before this time.';
COMMENT ON COLUMN postroom.republish.types IS
    'Only events of these types.';
COMMENT ON COLUMN postroom.republish.keys IS
    'Only events of these keys.';
COMMENT ON COLUMN postroom.republish.lo IS
    'The first seq of the range.';
COMMENT ON COLUMN postroom.republish.hi IS
    'The last seq of the range.';
COMMENT ON COLUMN postroom.republish.seqs IS
    'For kind reconcile: the seqs of the events. For kind range: NULL.';
COMMENT ON COLUMN postroom.republish.events IS
    'How many events the order had when it was stored.';
COMMENT ON COLUMN postroom.republish.rate IS
    'How many events are published in a second, at most.';
COMMENT ON COLUMN postroom.republish.digest IS
    'A digest of the order. While an order runs, no other order with the same digest is stored.';
COMMENT ON COLUMN postroom.republish.state IS
    'running: the relay carries the order out, or will do so. done: the relay has carried it out. cancelled: an operator ended it.';
COMMENT ON COLUMN postroom.republish.passed IS
    'The order''s events up to this seq are published, skipped or held, except those in pending.';
COMMENT ON COLUMN postroom.republish.pending IS
    'Events of the order up to passed that the relay still has to read, or is publishing now.';
COMMENT ON COLUMN postroom.republish.published IS
    'How many events were published.';
COMMENT ON COLUMN postroom.republish.skipped IS
    'How many events the relay left out when their turn came, because they were in held or archive, or because the relay had not published them for the first time yet.';
COMMENT ON COLUMN postroom.republish.held IS
    'How many events the broker refused. The relay moved them to held.';
CREATE INDEX republish_running ON postroom.republish (id) WHERE state = 'running';
CREATE UNIQUE INDEX republish_digest ON postroom.republish (digest) WHERE state = 'running';

-- The database has no record of the events that the relay is publishing now. So a transaction that
-- reschedules or cancels an event takes this lock first. Then it compares the time of the event
-- with the clock: if the event is due, the relay may be publishing it. After each read of due
-- events, the relay tries to get their locks: see internal/pglog/sql/unlocked.sql.
CREATE FUNCTION postroom.event_lock(seq bigint)
RETURNS bigint
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN hashtextextended('postroom.event ' || $1::text, 0::bigint);
REVOKE ALL ON FUNCTION postroom.event_lock FROM PUBLIC; -- relays and operators call it
COMMENT ON FUNCTION postroom.event_lock(bigint) IS
    'Internal. Returns the number of the advisory lock of an event of the log. A transaction that cancels or reschedules the event takes this lock.';

--
-- Rows that are not valid events
--
-- If a writer sets checked to true, the database does not check the row. So the log can have texts
-- of any length, infinite times, and headers with any names. The relay does not publish a row with
-- such a value. It holds the row in a form that every table, index and program accepts.
-- Constraints of the log would prevent such rows, but would slow down each producer: with six
-- comparisons an insert takes 21 µs instead of 12 µs.

-- If the function cuts a text, the result is still too long for an event. So the relay refuses the
-- event again if an operator replays it. The digest is that of the first 100,000 characters, because a
-- relay must not lose its lease while it computes the digest of a gigabyte.
CREATE FUNCTION postroom.clipped(value text, most int)
RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN octet_length($1) <= $2 THEN $1
            ELSE left($1, $2) || '… (' || octet_length($1)::text || ' bytes, sha256 ' || left(encode(sha256(convert_to(left($1, 100000), 'UTF8')), 'hex'), 16) || ')' END;
REVOKE ALL ON FUNCTION postroom.clipped FROM PUBLIC; -- who reads the log needs it: relays and operators
COMMENT ON FUNCTION postroom.clipped(text, int) IS
    'Internal. Returns the text. If the text has more bytes than the argument most, returns the beginning, the length and a digest of the first 100,000 characters.';

-- This must cost little, because a statement measures a page before it knows how many rows it may
-- return. So it decompresses nothing: compressed headers count as the largest ones that the log accepts.
CREATE FUNCTION postroom.header_bytes(headers jsonb)
RETURNS int
LANGUAGE sql STABLE PARALLEL SAFE
RETURN CASE
            --guard:a-page-of-compressed-headers-is-short false
            WHEN pg_column_compression($1) IS NOT NULL THEN 66048
            ELSE pg_column_size($1) END;
REVOKE ALL ON FUNCTION postroom.header_bytes FROM PUBLIC; -- who reads the log needs it: relays and operators
COMMENT ON FUNCTION postroom.header_bytes(jsonb) IS
    'Internal. Returns about how many bytes headers have at most. It is their size in the table, and more if they are compressed there.';

CREATE FUNCTION postroom.clamped(at timestamptz)
RETURNS timestamptz
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN $1 <@ tstzrange('0001-01-01 00:00:00+00', '10000-01-01 00:00:00+00') THEN $1 END;
REVOKE ALL ON FUNCTION postroom.clamped FROM PUBLIC; -- who reads the log needs it: relays and operators
COMMENT ON FUNCTION postroom.clamped(timestamptz) IS
    'Internal. Returns the time, or NULL if it is outside the years 1 to 9999.';

--
-- Rights
--
-- Each of these functions grants a role the rights that one part of Postroom needs. A relay gets no
-- rights on the service's own tables, and an inbox gets no rights on the log. Operators can change
-- held events, replays, republishes, pauses, and the state of webhook endpoints.
--
--     SELECT postroom.grant_producer('shop_app'), postroom.grant_relay('shop_relay');
--
-- Call the functions as the owner of the tables, once for each role. Migrate repeats the grants; after
-- a migration with another tool, call the functions again.
-- Each function grants rights only in its own schema. It sets the search path, because the owner of
-- the tables calls it. A function is in the file of its part, but
-- also grants rights on tables and functions of later files. So call it after all migrations.

CREATE FUNCTION postroom.grant_all(permissions text[], role regrole)
RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    permission text;
BEGIN
    FOREACH permission IN ARRAY permissions LOOP
        EXECUTE pg_catalog.format('GRANT %s TO %s', permission, role);
    END LOOP;
END
$$;
REVOKE ALL ON FUNCTION postroom.grant_all FROM PUBLIC; -- the owner calls it
COMMENT ON FUNCTION postroom.grant_all(text[], regrole) IS
    'Internal. Grants privileges to a role. Each privilege is written as in GRANT, before TO. The other grant functions call this one.';

-- A producer appends events, and compares the id and the digest of existing events. It gets no
-- right on seq and xid, because the relay finds new and late events by these columns. It also gets
-- no right on created_at, and no right to read the content of events.
CREATE FUNCTION postroom.grant_producer(role regrole)
RETURNS void
LANGUAGE sql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT postroom.grant_all(ARRAY[
        pg_catalog.format('USAGE ON SCHEMA %s', 'postroom'::regnamespace),
        'INSERT (source, event_id, digest, type, subject, key, content_type, correlation_id, causation_id, occurred_at,
                 not_before, trace_parent, trace_state, headers, data, checked) ON postroom.outbox',
        --guard:producers-read-no-content do 'SELECT ON postroom.outbox'
        'SELECT (source, event_id, digest) ON postroom.outbox',
        'SELECT ON postroom.migration', -- Outbox.Check
        'EXECUTE ON FUNCTION postroom.write, postroom.content_digest, postroom.refuse_conflict, postroom.check_event,
                             postroom.unchecked, postroom.cancel'
    ], role)
$$;
REVOKE ALL ON FUNCTION postroom.grant_producer FROM PUBLIC; -- the owner calls it
COMMENT ON FUNCTION postroom.grant_producer(regrole) IS
    'Grants a role only the rights that a producer needs: to write events and to cancel them. Call the function as the owner of the tables. migrate up and schema.Migrate repeat the grant; after a migration with another tool, call the function again.';

CREATE FUNCTION postroom.grant_relay(role regrole)
RETURNS void
LANGUAGE sql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT postroom.grant_all(ARRAY[
        pg_catalog.format('USAGE ON SCHEMA %s', 'postroom'::regnamespace),
        'SELECT ON postroom.migration, postroom.instance, postroom.archive, postroom.pause, postroom.dead, postroom.waiting',
        'SELECT, DELETE ON postroom.outbox',
        'SELECT ON SEQUENCE postroom.outbox_seq_seq',
        'SELECT, UPDATE ON postroom.relay',
        'SELECT, INSERT, UPDATE, DELETE ON postroom.held, postroom.relay_checkpoint, postroom.refused',
        'SELECT, INSERT, UPDATE ON postroom.republish',
        'INSERT (actor, action, reason, events, handler, source, event_id, replay, details) ON postroom.audit',
        'SELECT ON postroom.saga_known',
        'SELECT (name, state, started_at, waits_since, waits_hour, deadline, ended_at) ON postroom.saga', -- the relay counts the instances, for metrics
        'EXECUTE ON FUNCTION postroom.event_lock, postroom.clipped, postroom.clamped, postroom.header_bytes'
    ], role)
$$;
REVOKE ALL ON FUNCTION postroom.grant_relay FROM PUBLIC; -- the owner calls it
COMMENT ON FUNCTION postroom.grant_relay(regrole) IS
    'Grants a role only the rights that a relay needs. Call the function as the owner of the tables. migrate up and schema.Migrate repeat the grant; after a migration with another tool, call the function again.';
