-- The inbox, and the held events of handlers and of the relay. The inbox has the events that each
-- handler has decided, and the position of each handler in its stream.
--
-- Locks   nothing that is in use: every object is new.
-- Called  by Migrate and Print, as the second migration.

-- Rules on one column are in domains. The server reads a CHECK of a table again for each statement,
-- and that took as long as inserting the row and its index entry. The server reads the rules of a
-- domain once and keeps them.

CREATE DOMAIN postroom.handler AS text
    CONSTRAINT inbox_handler_check CHECK (octet_length(VALUE) BETWEEN 1 AND 128)
    CONSTRAINT inbox_handler_reserved CHECK (VALUE <> 'outbox');
COMMENT ON DOMAIN postroom.handler IS
    'The name of a handler. In held the name outbox means the relay. So no handler may have this name.';

CREATE DOMAIN postroom.holder AS text
    CONSTRAINT held_handler_check CHECK (octet_length(VALUE) BETWEEN 1 AND 128);
COMMENT ON DOMAIN postroom.holder IS
    'The name of a handler, or outbox, which means the relay.';

CREATE DOMAIN postroom.dedupe_key AS text
    CONSTRAINT inbox_dedupe_key_check CHECK (octet_length(VALUE) BETWEEN 1 AND 1024);
COMMENT ON DOMAIN postroom.dedupe_key IS
    'The key by which a handler recognises an event: source and id, or the result of Subscription.DedupeKey.';

CREATE DOMAIN postroom.attempts AS int
    CONSTRAINT held_attempts_check CHECK (VALUE >= 0);
COMMENT ON DOMAIN postroom.attempts IS
    'How many attempts were made.';

CREATE DOMAIN postroom.class AS text
    CONSTRAINT held_class_check CHECK (octet_length(VALUE) BETWEEN 1 AND 64);
COMMENT ON DOMAIN postroom.class IS
    'The kind of a failure: an SQLSTATE, or a word such as timeout.';

CREATE DOMAIN postroom.failures AS jsonb
    CONSTRAINT held_failures_check CHECK (jsonb_typeof(VALUE) = 'array');
COMMENT ON DOMAIN postroom.failures IS
    'The last ten failures of an event, each with at, class and text. The failure of a panic also has frame and stack.';

CREATE DOMAIN postroom.process AS text
    CONSTRAINT held_claimed_by_check CHECK (octet_length(VALUE) BETWEEN 1 AND 255);
COMMENT ON DOMAIN postroom.process IS
    'The name of a process.';

REVOKE ALL ON DOMAIN postroom.handler, postroom.holder, postroom.dedupe_key, postroom.attempts, postroom.class, postroom.failures, postroom.process FROM PUBLIC; -- as 0001_log.sql says

-- The inbox inserts a row before the handler runs, in the transaction of the handler's effects. So
-- the row and the effects commit together, or neither of them commits. If the event is held, its
-- row in this table and its row in the table held commit together.
--
-- There is no index by time. To find old rows, the inbox reads the table page by page; the table
-- sweep has the next page. The server uses freed space again. So each page has old and new rows,
-- and a BRIN index would soon have old rows in every range.
CREATE TABLE postroom.inbox (
    handler    postroom.handler    COLLATE "C" NOT NULL,
    dedupe_key postroom.dedupe_key COLLATE "C" NOT NULL,
    digest     postroom.digest,
    at         timestamptz         NOT NULL DEFAULT now(),
    failures   jsonb, -- not the domain failures, because the server would check it for each row
    result     text,
    discarded  boolean,
    PRIMARY KEY (handler, dedupe_key)
) WITH (
    -- The server's default thresholds grow with the table: a fifth of the table would be dead
    -- rows before the server uses their space again.
    autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 100000,
    autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 50000,
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000
);
COMMENT ON TABLE postroom.inbox IS
    'Which events each handler has decided. An event with a row here took effect, is in held, or is in archive. Because of the primary key, a repeated event has no second effect.';
COMMENT ON COLUMN postroom.inbox.dedupe_key IS
    'The key by which the handler recognises the event: source and id, or the result of Subscription.DedupeKey.';
COMMENT ON COLUMN postroom.inbox.digest IS
    'The first 16 bytes of a SHA-256 over type and data, or over the data only if no signature covers the type. It distinguishes a duplicate from another event with the same identity. NULL: every event with this dedupe_key counts as a duplicate.';
COMMENT ON COLUMN postroom.inbox.at IS
    'When the event was decided. For an event that was held, the time changes when the event takes effect or goes to archive. The table dedupe_window says how long after this time the row is kept.';
COMMENT ON COLUMN postroom.inbox.result IS
    'A text of up to 300 bytes, in which the handler describes for people what it did. NULL: there is none.';
COMMENT ON COLUMN postroom.inbox.discarded IS
    'true: the event had no effect, because it was discarded or cancelled. NULL: it took effect, or is held.';
COMMENT ON COLUMN postroom.inbox.failures IS
    'If the event failed before it took effect: its last ten failures, without stacks, and with at most 300 characters of each text. NULL: the event never failed, or has not taken effect.';

--
-- Held events
--

CREATE TABLE postroom.held (
    id              bigint            GENERATED ALWAYS AS IDENTITY PRIMARY KEY,

    -- The handler of the event, and its place in the order
    handler         postroom.holder   COLLATE "C" NOT NULL,
    dedupe_key      text              COLLATE "C",
    pos             bigint,
    chain           text              COLLATE "C",

    -- Its state, and when it is due
    -- in the years 1 to 9999, as JSON has it: lists have these times as places where a page begins
    --guard:lists-of-held-events-have-places 1 true
    next_at         timestamptz       CHECK (next_at >= '0001-01-01 00:00:00+00' AND next_at < '10000-01-01 00:00:00+00'),
    dead_at         timestamptz       CHECK (dead_at >= '0001-01-01 00:00:00+00' AND dead_at < '10000-01-01 00:00:00+00'),
    held_at         timestamptz       NOT NULL DEFAULT now() CHECK (held_at >= '0001-01-01 00:00:00+00' AND held_at < '10000-01-01 00:00:00+00'),
    epoch           bigint            NOT NULL DEFAULT 0,
    claimed_by      postroom.process,
    solitary        boolean           NOT NULL DEFAULT false,
    deaths          int               NOT NULL DEFAULT 0 CHECK (deaths >= 0),

    -- Its failures
    attempts        postroom.attempts NOT NULL DEFAULT 0,
    last_attempt    int               CHECK (last_attempt > 0),
    class           postroom.class,
    cause           postroom.digest,
    failures        postroom.failures,
    first_failed_at timestamptz,
    snoozed_at      timestamptz,

    -- The actions of operators
    revision        int               NOT NULL DEFAULT 0,
    replays         int               NOT NULL DEFAULT 0 CHECK (replays >= 0),
    replay          bigint,
    republish       bigint,

    -- A copy of the event, because the log and the stream do not keep it for ever
    logged_at       timestamptz       NOT NULL,
    source          text              NOT NULL,
    event_id        text              COLLATE "C" NOT NULL,
    type            text              NOT NULL,
    subject         text              NOT NULL,
    key             text              COLLATE "C",
    content_type    text              NOT NULL,
    correlation_id  text,
    causation_id    text,
    occurred_at     timestamptz,
    trace_parent    text,
    trace_state     text,
    headers         jsonb,
    data            bytea             NOT NULL,
    raw_headers     bytea,

    -- An event of a handler has its row in inbox for as long as it is held.
    --guard:what-is-owed-does-not-expire remove
    CONSTRAINT held_decided FOREIGN KEY (handler, dedupe_key) REFERENCES postroom.inbox,
    CONSTRAINT held_outgoing_or_decided CHECK ((handler = 'outbox') = (dedupe_key IS NULL)),
    CONSTRAINT held_outgoing_pos CHECK (handler <> 'outbox' OR pos IS NOT NULL),
    CONSTRAINT held_chain_has_pos CHECK (chain IS NULL OR pos IS NOT NULL),
    -- The relay reads them as it reads those of the log. Other programs may publish messages with larger headers.
    --guard:a-held-event-has-headers-that-a-relay-can-read 1 true
    CONSTRAINT held_outgoing_headers CHECK (handler <> 'outbox' OR headers IS NULL OR headers::postroom.stored_headers IS NOT NULL),

    -- Exactly one of three cases is true: an event is due at a time, is dead, or waits behind an
    -- earlier event of its key.
    CONSTRAINT held_due_or_dead CHECK (num_nonnulls(next_at, dead_at) <= 1),
    CONSTRAINT held_reachable CHECK (next_at IS NOT NULL OR dead_at IS NOT NULL OR chain IS NOT NULL),
    --guard:a-dead-event-says-why 1 true
    CONSTRAINT held_dead_why CHECK (dead_at IS NULL OR class IS NOT NULL),
    --guard:a-claim-ends 1 true
    CONSTRAINT held_claim_ends CHECK (claimed_by IS NULL OR next_at IS NOT NULL)
);
COMMENT ON TABLE postroom.held IS
    'Events that are scheduled, wait for another attempt, wait behind an earlier event of their key, run from here, or are dead. A row is removed when its event is published or has taken effect.';
COMMENT ON COLUMN postroom.held.handler IS
    'The handler that has to run the event. outbox: an outgoing event, which the relay has to publish.';
COMMENT ON COLUMN postroom.held.dedupe_key IS
    'The event''s dedupe_key in inbox. NULL: an outgoing event.';
COMMENT ON COLUMN postroom.held.pos IS
    'Orders the events of a key. For an outgoing event it is the event''s seq in the log.';
COMMENT ON COLUMN postroom.held.chain IS
    'The chain of the event: its events run one after the other. It is the event''s key, if the event blocks later events of the key, or waits behind an earlier event of the key. During a replay it may be a name that only the replay uses: see replay_event.chain. NULL for a scheduled event, because no order is promised for such an event.';
COMMENT ON COLUMN postroom.held.next_at IS
    'When the event is due, by the clock of this database. While a process has claimed the event: when the claim ends. NULL: the event waits behind an earlier event of its key, or is dead.';
COMMENT ON COLUMN postroom.held.dead_at IS
    'When the event became dead: its attempts were used up, or another attempt would have been useless. Nothing happens to a dead event until an operator decides. NULL: the event is not dead.';
COMMENT ON COLUMN postroom.held.held_at IS
    'When the event first came into this table.';
COMMENT ON COLUMN postroom.held.epoch IS
    'Rises with each claim. A process with an earlier claim can change nothing.';
COMMENT ON COLUMN postroom.held.claimed_by IS
    'The process that has claimed the event to run it, until next_at. If next_at has passed, the process died or stalled. NULL: no process has claimed the event.';
COMMENT ON COLUMN postroom.held.solitary IS
    'true: the event may have ended the process that ran it. So it runs alone in its process.';
COMMENT ON COLUMN postroom.held.deaths IS
    'How many claims on the event ran out since an attempt last ended: the processes that had these claims died or stalled.';
COMMENT ON COLUMN postroom.held.attempts IS
    'How many attempts count so far. An attempt of a handler counts from its beginning. It no longer counts if it ends because of an outage, a shutdown or a snooze, or if its handler pauses because of failures. An attempt of the relay counts if the event is refused, and not in an outage.';
COMMENT ON COLUMN postroom.held.last_attempt IS
    'If an operator replayed the event: the number of the attempt after which the event is dead again. NULL: the handler''s subscription says how many attempts the event has, and an outgoing event has the default number.';
COMMENT ON COLUMN postroom.held.class IS
    'The class of the event''s last failure.';
COMMENT ON COLUMN postroom.held.cause IS
    'A digest of the handler, and of the class, the place and the wording of the last failure. The place is a function or a constraint. The wording has no values that differ between events. Failures with the same cause have the same digest.';
COMMENT ON COLUMN postroom.held.failures IS
    'The last ten failures of the event.';
COMMENT ON COLUMN postroom.held.first_failed_at IS
    'When an attempt failed or was snoozed for the first time. NULL: no attempt failed or was snoozed.';
COMMENT ON COLUMN postroom.held.snoozed_at IS
    'The time of the first snooze since the last failure that was not a snooze, or since the last replay. 24 hours after this time, snoozes count as attempts. A failure because the database server lacked resources is a snooze, too.';
COMMENT ON COLUMN postroom.held.revision IS
    'How often an operator edited the event. In each revision, a step of an external handler has a new key for the vendor.';
COMMENT ON COLUMN postroom.held.replays IS
    'How often an operator replayed an outgoing event. After each replay, the relay publishes the event under a new message id.';
COMMENT ON COLUMN postroom.held.replay IS
    'The replay that last took the event into its list (replay_event). NULL: no replay did.';
COMMENT ON COLUMN postroom.held.republish IS
    'For an outgoing event that was refused when a republish published it again: the id of the republish. Such an event blocks no key.';
COMMENT ON COLUMN postroom.held.logged_at IS
    'When the event was written or, for a scheduled event, the time for which it was scheduled. If a message does not have this time: when the stream stored the message. A replay with --as-new changes the value to the time at which the replay made the event due again. The relay sends the value in the header postroom-logged-at.';
COMMENT ON COLUMN postroom.held.key IS
    'The key that the producer gave the event.';
COMMENT ON COLUMN postroom.held.data IS
    'The body of the event.';
COMMENT ON COLUMN postroom.held.raw_headers IS
    'If a message is not an event, or the database refuses the values of the event: the headers of the message, unchanged. Then data has the body of the message. For an outgoing event: the values of the log as JSON, if one of the values does not fit into the columns of this table.';

-- An event has at most one row for the relay, and at most one row for each handler.
CREATE UNIQUE INDEX held_outgoing ON postroom.held (pos) WHERE handler = 'outbox';
--guard:an-event-is-owed-once do CREATE INDEX held_owed ON postroom.held (handler, dedupe_key) WHERE dedupe_key IS NOT NULL
CREATE UNIQUE INDEX held_owed ON postroom.held (handler, dedupe_key) WHERE dedupe_key IS NOT NULL;

-- Due events of the relay and of each handler. Events that wait behind an earlier event of their
-- key have no entry. The handler is a column of the index and not its condition, because the
-- statements that use the index do not name the handler as a constant: see
-- internal/pglog/sql/pass.sql.
CREATE INDEX held_due ON postroom.held (handler, next_at, pos) WHERE next_at IS NOT NULL;

-- Claims that ran out, and events that run alone. With this index, the inbox finds them without
-- reading the other due events, of which there may be very many.
CREATE INDEX held_alone ON postroom.held (handler, next_at) WHERE solitary OR claimed_by IS NOT NULL;

-- The events of a key in their order. At most one of them is due.
--guard:a-place-in-a-key-is-taken-once do CREATE INDEX held_chain_pos ON postroom.held (handler, chain, pos) WHERE chain IS NOT NULL
CREATE UNIQUE INDEX held_chain_pos ON postroom.held (handler, chain, pos) WHERE chain IS NOT NULL;
--guard:one-event-of-a-key-is-due do CREATE INDEX held_chain_due ON postroom.held (handler, chain) WHERE chain IS NOT NULL AND next_at IS NOT NULL
CREATE UNIQUE INDEX held_chain_due ON postroom.held (handler, chain) WHERE chain IS NOT NULL AND next_at IS NOT NULL;

-- Events that wait behind an earlier event of their key. With this index, statements that count them
-- do not read events in other states, of which there may be very many. The condition is written in a way
-- that other statements do not use: with a plan from an empty table, they would read all of the index.
CREATE INDEX held_waiting ON postroom.held (handler, held_at) WHERE coalesce(next_at, dead_at) IS NULL;

-- Operators list dead events: all, those of a handler, and those of one cause.
CREATE INDEX held_dead ON postroom.held (dead_at, id) WHERE dead_at IS NOT NULL;
CREATE INDEX held_dead_handler ON postroom.held (handler, dead_at, id) WHERE dead_at IS NOT NULL;
CREATE INDEX held_dead_cause ON postroom.held (cause, dead_at, id) WHERE dead_at IS NOT NULL;

-- Ids and keys may be longer than an entry of a B-tree can be. So ids have a hash index. Keys have
-- a B-tree of their first 255 characters. Very many events may have the same key: in a hash index,
-- their entries would be one chain of pages, and each insert would read the complete chain.
CREATE INDEX held_event ON postroom.held USING hash (event_id);
CREATE INDEX held_key ON postroom.held (left(key, 255)) WHERE key IS NOT NULL;

--
-- External handlers
--

CREATE TABLE postroom.receipt (
    handler    postroom.handler    COLLATE "C" NOT NULL,
    dedupe_key postroom.dedupe_key COLLATE "C" NOT NULL,
    step       text                COLLATE "C" NOT NULL CHECK (octet_length(step) BETWEEN 1 AND 128),
    revision   int                 NOT NULL CHECK (revision >= 0),
    key        text                NOT NULL CHECK (octet_length(key) BETWEEN 1 AND 128),
    unanswered int                 NOT NULL DEFAULT 1 CHECK (unanswered >= 0),
    last_call  uuid,
    started_at timestamptz         NOT NULL DEFAULT now(),
    done_at    timestamptz,
    result     bytea,
    PRIMARY KEY (handler, dedupe_key, step, revision),
    --guard:receipts-live-as-long-as-their-inbox-row remove
    CONSTRAINT receipt_decided FOREIGN KEY (handler, dedupe_key) REFERENCES postroom.inbox ON DELETE CASCADE,
    CONSTRAINT receipt_started CHECK (unanswered > 0 OR done_at IS NOT NULL),
    CONSTRAINT receipt_result CHECK (result IS NULL OR done_at IS NOT NULL)
);
COMMENT ON TABLE postroom.receipt IS
    'The steps of external handlers. A step is recorded as started before its call, and as done, with its result, after the call. Any process may record that a step is done, even without the claim, because the call was made. A row is removed together with its row of inbox.';
COMMENT ON COLUMN postroom.receipt.dedupe_key IS
    'The dedupe_key of the event in inbox.';
COMMENT ON COLUMN postroom.receipt.step IS
    'The name that the handler gives the step.';
COMMENT ON COLUMN postroom.receipt.revision IS
    'The revision of the event in held for which the step was called.';
COMMENT ON COLUMN postroom.receipt.key IS
    'The key that the vendor got. By this key the vendor recognises a repeated call.';
COMMENT ON COLUMN postroom.receipt.unanswered IS
    'How many calls of the step began, not counting calls that certainly did not happen. If the only call did not happen, the row is removed. When the step is done, the number stays.';
COMMENT ON COLUMN postroom.receipt.last_call IS
    'The id of the call that began last. Each call has its own id. If the process learns that this call did not happen, it reduces unanswered by one and sets last_call to NULL, so that it cannot do this twice. NULL: that was done, or the beginning of the call was not recorded.';
COMMENT ON COLUMN postroom.receipt.started_at IS
    'When the first call of the step in this revision began. From this time on the vendor remembers the key, for a limited time.';
COMMENT ON COLUMN postroom.receipt.done_at IS
    'When the result was recorded. NULL: the step is not done.';
COMMENT ON COLUMN postroom.receipt.result IS
    'The result of the call. Every later attempt gets it.';

--
-- Handlers and processes
--

CREATE TABLE postroom.subscription (
    handler          postroom.handler COLLATE "C" PRIMARY KEY,
    created_at       timestamptz      NOT NULL DEFAULT now(),

    -- The events that it reads
    stream           text             NOT NULL CHECK (octet_length(stream) BETWEEN 1 AND 255),
    stream_created   timestamptz      NOT NULL,
    types            text[],
    subjects         text[]           NOT NULL DEFAULT '{}',
    ordered          boolean          NOT NULL DEFAULT false,
    own_keys         boolean          NOT NULL DEFAULT false,
    backfill_through bigint           NOT NULL DEFAULT 0 CHECK (backfill_through >= 0),

    -- Its position
    floor            bigint           NOT NULL DEFAULT 0 CHECK (floor >= 0),
    floor_at         timestamptz      NOT NULL DEFAULT now(),
    floor_id         text,
    floor_stored_at  timestamptz,
    floor_server     timestamptz      NOT NULL DEFAULT greatest(pg_postmaster_start_time(), pg_stat_get_bgwriter_stat_reset_time()),
    skipped_through  bigint           NOT NULL DEFAULT 0 CHECK (skipped_through >= 0),
    base             bigint           NOT NULL DEFAULT 0 CHECK (base >= 0),

    -- For an ordered handler: the process that reads
    epoch            bigint           NOT NULL DEFAULT 0,
    reader           postroom.process,
    reader_until     timestamptz,
    takeovers        int              NOT NULL DEFAULT 0 CHECK (takeovers >= 0),
    CONSTRAINT subscription_reader CHECK ((reader IS NULL) = (reader_until IS NULL)),
    CONSTRAINT subscription_lists CHECK (array_position(types, NULL) IS NULL AND array_position(subjects, NULL) IS NULL),
    CONSTRAINT subscription_times CHECK (isfinite(created_at) AND isfinite(stream_created) AND isfinite(floor_at) AND isfinite(floor_server)
        AND isfinite(coalesce(floor_stored_at, floor_at)))
);
COMMENT ON TABLE postroom.subscription IS
    'For each handler, the stream and the events that it reads, and its position. The inbox writes a row before it creates the handler''s consumer.';
COMMENT ON COLUMN postroom.subscription.stream IS
    'The stream that the handler reads.';
COMMENT ON COLUMN postroom.subscription.stream_created IS
    'When the stream was created. It distinguishes the stream from a later stream with the same name.';
COMMENT ON COLUMN postroom.subscription.types IS
    'Every event type that a process of the handler asked for. NULL: a process of the handler chose events by subject, so the handler gets every type.';
COMMENT ON COLUMN postroom.subscription.subjects IS
    'Every subject that a process of the handler asked for. If a process asked for types, each type is a subject here. Every process of the handler reads all of these subjects.';
COMMENT ON COLUMN postroom.subscription.ordered IS
    'Whether the process that registered the handler last runs it as an ordered handler.';
COMMENT ON COLUMN postroom.subscription.own_keys IS
    'Whether a process of the handler ever had a DedupeKey function. Then an event can be decided under a key that another process does not know, so a message without an inbox row is not taken for lost.';
COMMENT ON COLUMN postroom.subscription.backfill_through IS
    'The last sequence of the stream when the handler was new. Events above floor and up to this sequence may be of any age. 0: the limit of age applies to all events, for instance because reading began again at floor or lower, so that events above it were decided already, and their inbox rows may have expired.';
COMMENT ON COLUMN postroom.subscription.floor IS
    'The handler has decided all its messages of the stream up to this sequence. If the consumer is lost, the inbox creates a new consumer that begins after this sequence.';
COMMENT ON COLUMN postroom.subscription.floor_at IS
    'When floor was last recorded. The time stays if floor becomes lower because the handler has to read messages again.';
COMMENT ON COLUMN postroom.subscription.floor_id IS
    'For an ordered handler: the message id of the message at floor. If the stream has another message at floor, the broker lost data.';
COMMENT ON COLUMN postroom.subscription.floor_stored_at IS
    'For an ordered handler: when the stream stored the message at floor.';
COMMENT ON COLUMN postroom.subscription.floor_server IS
    'The start time of the database server that recorded floor. For a handler without order, the time counts too when the server last began to count statistics, because a server that crashed begins that again. If the server now has another start time, it crashed, was restarted, restored from a backup or replaced by a standby, and may have lost transactions. Then no process relies on what it remembers: it looks for the inbox rows of the messages above floor, or reads these messages again.';
COMMENT ON COLUMN postroom.subscription.skipped_through IS
    'The last sequence that the consumer of a handler without order had delivered when a subject was added. Up to this sequence the handler has skipped messages of that subject, so a message without an inbox row is not taken for lost.';
COMMENT ON COLUMN postroom.subscription.base IS
    'For an ordered handler: the sequence of a message plus base is the place of the event in its key (held.pos). base rises if the stream is created again, or if the handler begins again because the stream lost or dropped messages, so that later events get higher places.';
COMMENT ON COLUMN postroom.subscription.epoch IS
    'Rises with each new reader of an ordered handler, with each new subject, and when the stream is created again. A reader with an earlier epoch can record nothing.';
COMMENT ON COLUMN postroom.subscription.reader IS
    'The process that reads the stream for an ordered handler, until reader_until.';
COMMENT ON COLUMN postroom.subscription.reader_until IS
    'When the lease of reader ends, if reader does not renew it.';
COMMENT ON COLUMN postroom.subscription.takeovers IS
    'How many readers in a row ended without releasing their lease and without moving floor. A reader that finds no event to read sets it to 0.';

CREATE TABLE postroom.node (
    id             uuid        PRIMARY KEY,
    name           text        NOT NULL CHECK (octet_length(name) BETWEEN 1 AND 255),
    handlers       text[]      NOT NULL,
    dedupe_windows interval[]  NOT NULL,
    max_event_ages interval[]  NOT NULL,
    longest_window interval    NOT NULL,
    paused         jsonb       NOT NULL DEFAULT '{}',
    started_at     timestamptz NOT NULL DEFAULT now(),
    seen_at        timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT node_windows CHECK (cardinality(dedupe_windows) = cardinality(handlers)),
    CONSTRAINT node_ages CHECK (cardinality(max_event_ages) = cardinality(handlers)),
    CONSTRAINT node_lists CHECK (array_position(handlers, NULL) IS NULL AND array_position(dedupe_windows, NULL) IS NULL
        AND array_position(max_event_ages, NULL) IS NULL AND jsonb_typeof(paused) = 'object'),
    CONSTRAINT node_times CHECK (isfinite(started_at) AND isfinite(seen_at) AND longest_window <= '300 years'
        AND '300 years' >= ALL (dedupe_windows) AND '300 years' >= ALL (max_event_ages))
);
COMMENT ON TABLE postroom.node IS
    'The processes that run handlers, each with the handlers that it runs. A process renews its row every ten seconds. A row that was not renewed for an hour is removed.';
COMMENT ON COLUMN postroom.node.id IS
    'A new id for each start of a process.';
COMMENT ON COLUMN postroom.node.name IS
    'The host, the process id and the beginning of id, for people to read.';
COMMENT ON COLUMN postroom.node.dedupe_windows IS
    'For each handler in handlers: how long this process needs the inbox rows of the handler.';
COMMENT ON COLUMN postroom.node.max_event_ages IS
    'For each handler in handlers: the greatest age of an event that this process runs. The process holds an older event as dead.';
COMMENT ON COLUMN postroom.node.longest_window IS
    'The longest of these times: those in dedupe_windows, and Config.DedupeWindow of the process.';
COMMENT ON COLUMN postroom.node.paused IS
    'The handlers that paused by themselves in this process, because they failed for nearly all events. Each entry says since when the handler is paused, and has the class and text of the last failure before the pause.';
COMMENT ON COLUMN postroom.node.seen_at IS
    'When the process last renewed the row.';

CREATE TABLE postroom.dedupe_window (
    handler        postroom.handler COLLATE "C" PRIMARY KEY,
    kept           interval         NOT NULL CHECK (kept > '0' AND kept <= '300 years'),
    expired_before timestamptz      CHECK (isfinite(expired_before))
);
COMMENT ON TABLE postroom.dedupe_window IS
    'How long the inbox rows of each handler are kept. Processes remove old inbox rows step by step (the sweep). Each step writes this table in the transaction that removes rows. If a handler has no row here, its inbox rows are kept for the longest time of all handlers.';
COMMENT ON COLUMN postroom.dedupe_window.kept IS
    'Each process in node that runs the handler asks for a time. kept is the longest of these times. If no process in node runs the handler, kept stays as it was.';
COMMENT ON COLUMN postroom.dedupe_window.expired_before IS
    'The sweep may have removed inbox rows of events that were decided before this time. So an event that was written before this time does not run, even if rows are kept for longer now. NULL: the sweep has removed no row of the handler.';

CREATE TABLE postroom.sweep (
    only_one  boolean     PRIMARY KEY DEFAULT true CHECK (only_one),
    next_page bigint      NOT NULL DEFAULT 0 CHECK (next_page >= 0),
    due_at    timestamptz NOT NULL DEFAULT now() CHECK (isfinite(due_at))
);
COMMENT ON TABLE postroom.sweep IS
    'One row: the next page of inbox from which a process will remove old rows, and when. The processes take turns.';
COMMENT ON COLUMN postroom.sweep.next_page IS
    'The page of the table inbox at which the next removal begins. After the last page the next one is page 0.';
COMMENT ON COLUMN postroom.sweep.due_at IS
    'When the next removal may begin.';
INSERT INTO postroom.sweep DEFAULT VALUES;

CREATE TABLE postroom.filter (
    kind      text        COLLATE "C" NOT NULL CHECK (kind IN ('receiver', 'sender')),
    name      text        COLLATE "C" NOT NULL CHECK (octet_length(name) BETWEEN 1 AND 255),
    since     timestamptz NOT NULL DEFAULT now(),
    taken_at  timestamptz,
    passed_at timestamptz,
    passed    text        CHECK (octet_length(passed) BETWEEN 1 AND 255),
    types     text[]      NOT NULL DEFAULT '{}',
    PRIMARY KEY (kind, name),
    CHECK ((passed_at IS NULL) = (passed IS NULL)),
    CONSTRAINT filter_types CHECK (array_position(types, NULL) IS NULL),
    CONSTRAINT filter_times CHECK (isfinite(since) AND isfinite(coalesce(taken_at, since)) AND isfinite(coalesce(passed_at, since)))
);
COMMENT ON TABLE postroom.filter IS
    'What came to the filters of webhooks, which choose events by their types. A wrong filter passes over all events and causes no error. So status compares these times. A process writes each fact at most once an hour.';
COMMENT ON COLUMN postroom.filter.kind IS
    'receiver: the types that a receiver of webhooks stores. sender: the types that a sender of webhooks sends, and its endpoints.';
COMMENT ON COLUMN postroom.filter.name IS
    'The source of the receiver, or the name of the handler that delivers.';
COMMENT ON COLUMN postroom.filter.since IS
    'When the first event came to the filter.';
COMMENT ON COLUMN postroom.filter.taken_at IS
    'When the filter last took an event, exact to an hour. NULL: it never took one.';
COMMENT ON COLUMN postroom.filter.passed_at IS
    'When the filter last passed over an event, exact to an hour. NULL: it never passed over one.';
COMMENT ON COLUMN postroom.filter.passed IS
    'The type of the event that the filter passed over at passed_at.';
COMMENT ON COLUMN postroom.filter.types IS
    'For a sender: up to 100 types of events that came and that its SenderConfig allows. An endpoint whose types are none of these gets nothing.';

--
-- Functions for ordered handlers
--

CREATE FUNCTION postroom.key_lock(handler text, key text)
RETURNS bigint
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN hashtextextended('postroom.key ' || octet_length($1)::text || ' ' || $1 || ' ' || $2, 0::bigint);
REVOKE ALL ON FUNCTION postroom.key_lock FROM PUBLIC; -- inboxes and operators call it
COMMENT ON FUNCTION postroom.key_lock(text, text) IS
    'Internal. Returns the number of the advisory lock of a handler''s key. A transaction that decides, holds or settles an event of the key takes this lock.';

-- The function takes the lock first. So each later statement of the function sees all transactions
-- that committed before the function got the lock, even if the calling statement began earlier. The
-- server may keep a plan that it made while the table held was empty. Without the two settings
-- below, that plan could later read the complete table.
CREATE FUNCTION postroom.enter_key(handler text, key text, pos bigint, epoch bigint)
RETURNS text
LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
DECLARE
    reads boolean;
    waits boolean;
BEGIN
    --guard:a-key-is-entered-by-one 1 = @1
    IF pg_advisory_xact_lock(postroom.key_lock($1, $2)) IS NULL THEN -- this condition is never true; the IF only calls the lock function, which otherwise would need its own statement
        RETURN NULL;
    END IF;
    --guard:a-term-enters-no-key-on-another-server 1.2 true
    SELECT s.epoch = $4 AND s.floor_server = pg_postmaster_start_time(), EXISTS (SELECT FROM postroom.held WHERE held.handler = $1 AND held.chain = $2) INTO reads, waits
    FROM postroom.subscription s WHERE s.handler = $1;
    --guard:a-reader-that-was-replaced-enters-no-key 2 = NULL
    IF reads IS NOT TRUE THEN
        RETURN 'stale';
    END IF;
    IF NOT waits THEN
        RETURN 'free';
    END IF;
    PERFORM FROM postroom.held WHERE held.handler = $1 AND held.chain = $2 AND held.pos = $3;
    IF FOUND THEN
        RETURN 'late';
    END IF;
    PERFORM FROM postroom.held WHERE held.handler = $1 AND held.chain = $2 AND held.pos < $3 ORDER BY held.pos DESC LIMIT 1;
    RETURN CASE WHEN FOUND THEN 'behind' ELSE 'late' END;
END
$$;
REVOKE ALL ON FUNCTION postroom.enter_key FROM PUBLIC; -- inboxes call it
COMMENT ON FUNCTION postroom.enter_key(text, text, bigint, bigint) IS
    'Internal. Locks a handler''s key until the transaction ends, and returns whether the event at pos may run. free: it may, because no event of the key is held. behind: it must wait, because an earlier event of the key is held. late: it comes too late, because an event at the same place is held, or only later events of the key are held. stale: the caller must not decide the event, because epoch is no longer the epoch of the handler, or because the server was restarted or replaced since the reader took its lease.';

--
-- Rights
--

CREATE FUNCTION postroom.grant_inbox(role regrole)
RETURNS void
LANGUAGE sql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT postroom.grant_all(ARRAY[
        pg_catalog.format('USAGE ON SCHEMA %s', 'postroom'::regnamespace),
        'SELECT ON postroom.migration, postroom.instance, postroom.archive, postroom.pause, postroom.dead, postroom.waiting',
        'SELECT, INSERT, UPDATE, DELETE ON postroom.inbox, postroom.held, postroom.receipt, postroom.node',
        'SELECT, INSERT, UPDATE ON postroom.subscription, postroom.dedupe_window, postroom.filter',
        'SELECT, UPDATE ON postroom.sweep, postroom.dry_run',
        'INSERT ON postroom.archive', -- events that the handlers of the inbox discard
        'INSERT (actor, action, reason, events, handler, source, event_id, replay, details) ON postroom.audit',
        'SELECT (id) ON postroom.audit', -- INSERT … RETURNING id
        'EXECUTE ON FUNCTION postroom.key_lock, postroom.enter_key'
    ], role)
$$;
REVOKE ALL ON FUNCTION postroom.grant_inbox FROM PUBLIC; -- the owner calls it
COMMENT ON FUNCTION postroom.grant_inbox(regrole) IS
    'Grants a role the rights that an inbox needs. The handlers of the inbox may need more rights. Call the function as the owner of the tables. migrate up and schema.Migrate repeat the grant; after a migration with another tool, call the function again.';
