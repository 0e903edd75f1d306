-- What handlers owe: failed events and their next attempt, events of another
-- process, of nobody yet, or of no use. And where each handler stands.
--
-- Additive: code of version 6 writes outgoing rows alone, which stay as they are,
-- and acknowledges by its own rules; stop its inboxes before one of this version
-- holds events of theirs.

-- The ledger's rules move to domains: a table's constraints are read and set up
-- anew for each row of the straight path, which took as long as the row and its
-- index together. Nobody handles outgoing events, so no handler has that name.
-- This writes the ledger anew, and keeps inboxes waiting for as long.
CREATE DOMAIN postroom.handler AS text
    CONSTRAINT inbox_handler_check CHECK (octet_length(VALUE) BETWEEN 1 AND 128)
    CONSTRAINT inbox_handler_reserved CHECK (VALUE <> 'outbox');
CREATE DOMAIN postroom.dedupe_key AS text
    CONSTRAINT inbox_dedupe_key_check CHECK (octet_length(VALUE) BETWEEN 1 AND 1024);
ALTER TABLE postroom.inbox
    DROP CONSTRAINT inbox_handler_check,
    DROP CONSTRAINT inbox_dedupe_key_check,
    DROP CONSTRAINT inbox_digest_check,
    ALTER COLUMN handler TYPE postroom.handler,
    ALTER COLUMN dedupe_key TYPE postroom.dedupe_key,
    ALTER COLUMN digest TYPE postroom.digest;

-- The same for held, of whose rules those on one column can move.
CREATE DOMAIN postroom.holder AS text
    CONSTRAINT held_handler_check CHECK (octet_length(VALUE) BETWEEN 1 AND 128);
CREATE DOMAIN postroom.attempts AS int
    CONSTRAINT held_attempts_check CHECK (VALUE >= 0);
CREATE DOMAIN postroom.class AS text
    CONSTRAINT held_class_check CHECK (octet_length(VALUE) BETWEEN 1 AND 64);
CREATE DOMAIN postroom.failures AS jsonb
    CONSTRAINT held_failures_check CHECK (jsonb_typeof(VALUE) = 'array');
CREATE DOMAIN postroom.process AS text
    CONSTRAINT held_claimed_by_check CHECK (octet_length(VALUE) BETWEEN 1 AND 255);
ALTER TABLE postroom.held
    DROP CONSTRAINT held_handler_check,
    DROP CONSTRAINT held_attempts_check,
    DROP CONSTRAINT held_class_check,
    DROP CONSTRAINT held_failures_check,
    ALTER COLUMN handler TYPE postroom.holder,
    ALTER COLUMN attempts TYPE postroom.attempts,
    ALTER COLUMN class TYPE postroom.class,
    ALTER COLUMN failures TYPE postroom.failures;

-- The ledger's row says decided, the row here says owed: what is owed has its
-- ledger row for as long as it is.
ALTER TABLE postroom.held
    ALTER COLUMN pos DROP NOT NULL,
    ADD COLUMN dedupe_key  text,
    ADD COLUMN epoch       bigint  NOT NULL DEFAULT 0,
    ADD COLUMN claimed_by  postroom.process,
    ADD COLUMN solitary    boolean NOT NULL DEFAULT false,
    ADD COLUMN fingerprint postroom.digest,
    ADD COLUMN raw_headers bytea,
    ADD CONSTRAINT held_decided FOREIGN KEY (handler, dedupe_key) REFERENCES postroom.inbox,
    ADD CONSTRAINT held_outgoing_or_decided CHECK ((handler = 'outbox') = (dedupe_key IS NULL)),
    ADD CONSTRAINT held_outgoing_pos CHECK (handler <> 'outbox' OR pos IS NOT NULL),
    ADD CONSTRAINT held_key_has_pos CHECK (key IS NULL OR pos IS NOT NULL),
    ADD CONSTRAINT held_claim_ends CHECK (claimed_by IS NULL OR next_at IS NOT NULL);

-- An event is owed once to a handler.
CREATE UNIQUE INDEX held_owed ON postroom.held (handler, dedupe_key) WHERE dedupe_key IS NOT NULL;

-- Finds claims that ran out, and what runs alone, beside any number of others
-- that are due.
CREATE INDEX held_alone ON postroom.held (handler, next_at) WHERE solitary OR claimed_by IS NOT NULL;

COMMENT ON COLUMN postroom.held.dedupe_key IS
    'The event''s key in the ledger. NULL for outgoing events.';
COMMENT ON COLUMN postroom.held.next_at IS
    'When the event is due, by this database''s clock; while it is claimed, when the claim ends. NULL: it waits behind its key, or is dead.';
COMMENT ON COLUMN postroom.held.epoch IS
    'Rises with each claim. Who claimed it before can settle nothing any more.';
COMMENT ON COLUMN postroom.held.claimed_by IS
    'The process that runs it, until next_at. A claim that ran out was of a process that died or stood still.';
COMMENT ON COLUMN postroom.held.solitary IS
    'It may be what ends the processes that run it: it runs with nothing beside it.';
COMMENT ON COLUMN postroom.held.attempts IS
    'How many were made; one is counted when it begins. An outage, a shutdown, or an answer that never came is none.';
COMMENT ON COLUMN postroom.held.fingerprint IS
    'Of handler, class and the place in the program: the same for failures that have one cause.';
COMMENT ON COLUMN postroom.held.raw_headers IS
    'The message''s headers as they came, for one that is no event. data is its body.';
COMMENT ON COLUMN postroom.held.failures IS
    'Its last ten failures: at, class, text; of a panic also frame and stack.';

-- What each handler reads, and how far it has come. A row is written before the
-- handler's consumer is made.
CREATE TABLE postroom.subscription (
    handler          postroom.handler PRIMARY KEY,
    stream           text        NOT NULL CHECK (octet_length(stream) BETWEEN 1 AND 255),
    stream_created   timestamptz NOT NULL,
    types            text[],
    floor            bigint      NOT NULL DEFAULT 0 CHECK (floor >= 0),
    floor_at         timestamptz NOT NULL DEFAULT now(),
    backfill_through bigint      NOT NULL DEFAULT 0 CHECK (backfill_through >= 0),
    created_at       timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE postroom.subscription IS
    'What each handler reads of which stream, and how far it has come.';
COMMENT ON COLUMN postroom.subscription.stream_created IS
    'Tells the stream from another of its name that is made after it.';
COMMENT ON COLUMN postroom.subscription.types IS
    'Every event type that any process asked for. NULL: events are chosen by subject, and each type is somebody''s.';
COMMENT ON COLUMN postroom.subscription.floor IS
    'Everything up to this sequence of the stream is decided: a consumer that was lost is made again behind it.';
COMMENT ON COLUMN postroom.subscription.backfill_through IS
    'What was in the stream when the handler was new: up to here its age does not matter.';

-- The processes that run handlers. A row is renewed every ten seconds.
CREATE TABLE postroom.node (
    id         uuid        PRIMARY KEY,
    name       text        NOT NULL CHECK (octet_length(name) BETWEEN 1 AND 255),
    handlers   text[]      NOT NULL,
    ledger     interval    NOT NULL,
    age_gate   interval    NOT NULL,
    started_at timestamptz NOT NULL DEFAULT now(),
    seen_at    timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE postroom.node IS
    'The processes that run handlers, each with what it runs. A row that is not renewed for an hour is removed.';
COMMENT ON COLUMN postroom.node.ledger IS
    'For how long this process keeps a ledger row. None may trust it for longer: see age_gate.';

-- Where the expiry of the ledger stands. Processes take turns at it.
CREATE TABLE postroom.sweep (
    only_one   boolean     PRIMARY KEY DEFAULT true CHECK (only_one),
    next_page  bigint      NOT NULL DEFAULT 0 CHECK (next_page >= 0),
    next_at    timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE postroom.sweep IS
    'One row: up to which page of the ledger old rows are removed, and when the next pages are due.';
INSERT INTO postroom.sweep DEFAULT VALUES;

-- The ledger is swept from its first page to its last, over and over: space that
-- is freed is used again, so that a summary of ranges would soon say of each that
-- it has something old.
DROP INDEX postroom.inbox_at;

-- The default thresholds grow with the table: a fifth of it would be dead rows
-- before their space is used again.
ALTER TABLE postroom.inbox SET (
    autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 100000,
    autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 50000,
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000);
