-- The straight path: the log that producers append to, the one row that says
-- how far it is published, and the ledger of what consumers have decided.
--
-- Every check that the Go code makes of an event stands here again, for writers
-- that use SQL: a bad event fails in its producer's transaction and never
-- becomes a row that cannot be published.

-- One row: who this Postroom is. Two Postrooms of one database, in two schemas,
-- have two identities, and so has a copy made with CREATE SCHEMA.
CREATE TABLE postroom.instance (
    only_one   boolean     PRIMARY KEY DEFAULT true CHECK (only_one),
    id         uuid        NOT NULL DEFAULT gen_random_uuid(),
    created_at timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE postroom.instance IS
    'One row: the identity of this Postroom. Names of durable consumers are derived from it.';
INSERT INTO postroom.instance DEFAULT VALUES;

-- An event type or a NATS subject: tokens with single dots between them.
CREATE DOMAIN postroom.subject AS text
    CONSTRAINT subject_length CHECK (octet_length(VALUE) <= 255)
    CONSTRAINT subject_syntax CHECK (VALUE ~ '^[A-Za-z0-9_-]+([.][A-Za-z0-9_-]+)*$');

-- White space and control characters are spelled out, as Unicode has them:
-- [[:space:]] and [[:cntrl:]] mean something else in each locale, and in C
-- nothing beyond ASCII.

-- An event id or a source. '#' joins the two in a message id, and white space
-- in a dedupe key.
CREATE DOMAIN postroom.identifier AS text
    CONSTRAINT identifier_length CHECK (octet_length(VALUE) BETWEEN 1 AND 255)
    CONSTRAINT identifier_syntax CHECK (VALUE !~
        '[#\u0001-\u0020\u007F-\u00A0\u1680\u2000-\u200A\u2028\u2029\u202F\u205F\u3000]');

-- A text that travels as the value of a header.
CREATE DOMAIN postroom.label AS text
    CONSTRAINT label_length CHECK (octet_length(VALUE) BETWEEN 1 AND 255)
    CONSTRAINT label_syntax CHECK (VALUE !~
        '[\u0001-\u001F\u007F-\u009F]|^[ \u00A0\u1680\u2000-\u200A\u2028\u2029\u202F\u205F\u3000]|[ \u00A0\u1680\u2000-\u200A\u2028\u2029\u202F\u205F\u3000]$');

-- The writer's own headers: an object of texts. What is no text, which only a
-- writer in SQL can produce, travels as its JSON. A name that the broker,
-- CloudEvents or Postroom gives a meaning could purge a stream or forge an
-- identity. The path functions get silent = true: a value that is no object is
-- refused by headers_form rather than an error of theirs.
CREATE DOMAIN postroom.headers AS jsonb
    CONSTRAINT headers_form CHECK (jsonb_typeof(VALUE) = 'object')
    CONSTRAINT headers_count CHECK (
        jsonb_array_length(jsonb_path_query_array(VALUE, 'strict $.keyvalue()', '{}', true)) <= 64)
    CONSTRAINT headers_names CHECK (NOT jsonb_path_exists(VALUE,
        'strict $.keyvalue().key ? (!(@ like_regex "^[A-Za-z0-9_-]+$")
            || @ like_regex "^(nats-|ce-|postroom-|(traceparent|tracestate|content-type|status|description)$)" flag "i")',
        '{}', true))
    CONSTRAINT headers_name_length CHECK (octet_length(VALUE::text) <= 128 -- counting in a pattern is slow
        OR NOT jsonb_path_exists(VALUE, 'strict $.keyvalue().key ? (@ like_regex "^.{129}")', '{}', true))
    CONSTRAINT headers_case CHECK ( -- a JSON object keeps one of two equal names
        jsonb_array_length(jsonb_path_query_array(lower(VALUE::text COLLATE "C")::jsonb, 'strict $.keyvalue()', '{}', true))
        = jsonb_array_length(jsonb_path_query_array(VALUE, 'strict $.keyvalue()', '{}', true)))
    CONSTRAINT headers_values CHECK (NOT jsonb_path_exists(VALUE,
        'strict $.* ? (@ like_regex
            "[\\u0001-\\u001F\\u007F-\\u009F]|^[ \\u00A0\\u1680\\u2000-\\u200A\\u2028\\u2029\\u202F\\u205F\\u3000]|[ \\u00A0\\u1680\\u2000-\\u200A\\u2028\\u2029\\u202F\\u205F\\u3000]$")',
        '{}', true))
    -- Names and values together. The text has 8 bytes more for each header, and
    -- backslashes before quotes and backslashes.
    CONSTRAINT headers_size CHECK (octet_length(VALUE::text) <= 32768
        OR octet_length(regexp_replace(VALUE::text, '\\(.)', '\1', 'g'))
            - 8 * jsonb_array_length(jsonb_path_query_array(VALUE, 'strict $.keyvalue()', '{}', true)) <= 32768);

-- The log. Rows are inserted and read; they are never updated. What is published is not marked here: it
-- follows from the one row of postroom.relay.
--
-- Wide optional columns come last and are mostly NULL, which costs no space.
CREATE TABLE postroom.outbox (
    seq            bigint      GENERATED ALWAYS AS IDENTITY (CACHE 1) PRIMARY KEY,
    xid            xid8        NOT NULL DEFAULT pg_current_xact_id(),
    created_at     timestamptz NOT NULL DEFAULT clock_timestamp() CHECK (isfinite(created_at)),
    digest         bytea       NOT NULL CHECK (octet_length(digest) = 16),
    source         postroom.identifier NOT NULL,
    event_id       postroom.identifier NOT NULL,
    type           postroom.subject    NOT NULL,
    subject        postroom.subject    NOT NULL,
    key            postroom.label,
    -- The media type of a message that is a whole event would mislead its reader.
    content_type   postroom.label      NOT NULL DEFAULT 'application/json'
        CHECK (NOT starts_with(lower(content_type COLLATE "C"), 'application/cloudevents')),
    correlation_id postroom.label,
    causation_id   postroom.label,
    occurred_at    timestamptz CHECK (occurred_at >= '0001-01-01 00:00:00+00' AND occurred_at < '10000-01-01 00:00:00+00'),
    trace_parent   postroom.label,
    trace_state    text        CHECK (octet_length(trace_state) <= 512 AND trace_state !~
        '[\u0001-\u001F\u007F-\u009F]|^[ \u00A0\u1680\u2000-\u200A\u2028\u2029\u202F\u205F\u3000]|[ \u00A0\u1680\u2000-\u200A\u2028\u2029\u202F\u205F\u3000]$'),
    headers        postroom.headers,
    data           bytea       NOT NULL CHECK (octet_length(data) <= 983040),

    -- Writing the same event again is a no-op; see outbox/sql/write.sql.
    CONSTRAINT outbox_event UNIQUE (source, event_id)
);

-- Serves the late rows of internal/pglog/sql/pass.sql: what became visible since the
-- previous snapshot is found by the id of its transaction.
CREATE INDEX outbox_xid_seq ON postroom.outbox (xid, seq);

COMMENT ON TABLE postroom.outbox IS
    'Append-only log of events. Written in the producer''s transaction, published by the relay.';
COMMENT ON COLUMN postroom.outbox.seq IS
    'Order within a key. Not the order of commits: a lower seq can become visible after a higher one.';
COMMENT ON COLUMN postroom.outbox.xid IS
    'The top-level transaction. The system column xmin will not do: inside a savepoint it is the subtransaction''s.';
COMMENT ON COLUMN postroom.outbox.digest IS
    'First 16 bytes of SHA-256 over the content: tells a repeated event from another event with the same id.';
COMMENT ON COLUMN postroom.outbox.created_at IS
    'When the row was written, by this database''s clock. Travels as postroom-logged-at.';

-- Rows are only ever inserted, so nothing but the freeze has to visit them. The
-- default thresholds grow with the table; these keep the visibility map and the
-- statistics fresh on a log of any size.
ALTER TABLE postroom.outbox SET (
    autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 100000,
    autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 50000,
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000);

-- One row: what is published, and who may say so. It reads: every event with
-- seq <= high whose transaction is visible in snap has been published, except
-- those in pending.
CREATE TABLE postroom.relay (
    only_one   boolean        PRIMARY KEY DEFAULT true CHECK (only_one),

    -- The lease. Times are this database's; a write that carries an older epoch
    -- changes nothing.
    epoch      bigint         NOT NULL DEFAULT 0,
    owner      text,
    expires_at timestamptz    NOT NULL DEFAULT '-infinity',

    high       bigint         NOT NULL DEFAULT 0,
    floor      bigint         NOT NULL DEFAULT 0,
    snap       pg_snapshot    NOT NULL DEFAULT pg_current_snapshot(),
    pending    int8multirange NOT NULL DEFAULT '{}',
    cluster    bigint         NOT NULL
) WITH (fillfactor = 20); -- room on the page: it is updated 50 times a second, and HOT

COMMENT ON TABLE postroom.relay IS
    'One row: the relay''s lease, and which part of the log is published.';
COMMENT ON COLUMN postroom.relay.floor IS
    'Events up to here are never looked for by transaction id: their ids are of another cluster (dump and restore).';
COMMENT ON COLUMN postroom.relay.snap IS
    'The snapshot of the last pass. What is visible later and not in it is late.';
COMMENT ON COLUMN postroom.relay.pending IS
    'Read but not acknowledged when this was recorded; or late and not read yet.';
COMMENT ON COLUMN postroom.relay.cluster IS
    'System identifier of the cluster that snap belongs to; another one means the database was restored elsewhere.';
INSERT INTO postroom.relay (cluster) SELECT system_identifier FROM pg_control_system();

-- The ledger. A row means decided: the handler never runs this event again on
-- the straight path. It is inserted before the handler runs, in the transaction
-- of the handler's effects, and so exists if and only if they do.
CREATE TABLE postroom.inbox (
    handler    text        NOT NULL CHECK (octet_length(handler) BETWEEN 1 AND 128),
    dedupe_key text        NOT NULL CHECK (octet_length(dedupe_key) BETWEEN 1 AND 1024),
    digest     bytea       CHECK (octet_length(digest) = 16),
    at         timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (handler, dedupe_key)
);

-- Rows come in the order of their time, so a few kilobytes find the old ones.
CREATE INDEX inbox_at ON postroom.inbox USING brin (at);

COMMENT ON TABLE postroom.inbox IS
    'Which events each handler has decided. The primary key is what turns repeated delivery into one effect.';
COMMENT ON COLUMN postroom.inbox.digest IS
    'First 16 bytes of SHA-256 over type and data: tells a duplicate from another event with the same identity.';
