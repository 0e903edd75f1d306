-- The actions of operators, mainly on dead events, and the records of these actions.
--
-- Locks   inbox, in SHARE ROW EXCLUSIVE mode, because archive refers to it.
-- Called  by Migrate and Print, as the third migration.

CREATE TABLE postroom.audit (
    id       bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at       timestamptz NOT NULL DEFAULT clock_timestamp(), -- a transaction may have begun long ago
    role     text        NOT NULL DEFAULT session_user,
    actor    text        NOT NULL CHECK (octet_length(actor) BETWEEN 1 AND 255),
    action   text        NOT NULL CHECK (octet_length(action) BETWEEN 1 AND 64),
    reason   text        NOT NULL DEFAULT '' CHECK (octet_length(reason) <= 4096),
    events   bigint      NOT NULL CHECK (events >= 0),
    handler  text,
    source   text,
    event_id text        COLLATE "C",
    replay   bigint,
    details  jsonb
);
COMMENT ON TABLE postroom.audit IS
    'The actions of operators: who did what, why, and to how many events. The table also has some actions of programs: a producer cancels an event, a handler discards one, a relay orders a republish, a sender disables an endpoint. Each row is written in the transaction of its action. No row is ever changed or removed.';
COMMENT ON COLUMN postroom.audit.role IS
    'The role with which the program of the actor had logged in. The server writes it: no grant has the right to write this column, id or at.';
COMMENT ON COLUMN postroom.audit.actor IS
    'Who acted, as the program says.';
COMMENT ON COLUMN postroom.audit.action IS
    'The action, such as replay or discard.';
COMMENT ON COLUMN postroom.audit.events IS
    'How many events the action was about.';
COMMENT ON COLUMN postroom.audit.event_id IS
    'The event, if the action was on one event.';
COMMENT ON COLUMN postroom.audit.replay IS
    'The replay, if the action was on a replay.';
COMMENT ON COLUMN postroom.audit.details IS
    'More about the action, such as the filter and the options that the operator gave.';
CREATE INDEX audit_event ON postroom.audit USING hash (event_id) WHERE event_id IS NOT NULL;
CREATE INDEX audit_replay ON postroom.audit (replay) WHERE replay IS NOT NULL;

CREATE TABLE postroom.pause (
    handler   postroom.holder  COLLATE "C" PRIMARY KEY,
    paused_at timestamptz      NOT NULL DEFAULT now() CHECK (isfinite(paused_at)),
    until     timestamptz      CHECK (isfinite(until)), -- NULL is for ever
    actor     text             NOT NULL CHECK (octet_length(actor) BETWEEN 1 AND 255),
    reason    text             NOT NULL CHECK (octet_length(reason) BETWEEN 1 AND 4096)
);
COMMENT ON TABLE postroom.pause IS
    'Handlers that operators paused. The name outbox means all relays of the log. All processes read this table every second. A row has no effect after until.';
COMMENT ON COLUMN postroom.pause.paused_at IS
    'Since when the handler has been paused.';
COMMENT ON COLUMN postroom.pause.until IS
    'When the handler resumes by itself. NULL: an operator must resume it.';

-- A discarded event keeps its row in inbox. So it stays discarded if the broker delivers it again,
-- and an operator can bring it back.
CREATE TABLE postroom.archive (
    id              bigint            PRIMARY KEY,
    discarded_at    timestamptz       NOT NULL DEFAULT now() CHECK (discarded_at >= '0001-01-01 00:00:00+00' AND discarded_at < '10000-01-01 00:00:00+00'), -- as dead_at of held
    audit           bigint            NOT NULL,

    handler         postroom.holder   COLLATE "C" NOT NULL,
    dedupe_key      text              COLLATE "C",
    pos             bigint,
    dead_at         timestamptz,
    held_at         timestamptz       NOT NULL,
    solitary        boolean           NOT NULL,
    attempts        postroom.attempts NOT NULL,
    class           postroom.class,
    cause           postroom.digest,
    failures        postroom.failures,
    first_failed_at timestamptz,
    revision        int               NOT NULL,
    replays         int               NOT NULL,
    replay          bigint,
    republish       bigint,

    logged_at       timestamptz       NOT NULL,
    source          text              NOT NULL,
    event_id        text              COLLATE "C" NOT NULL,
    type            text              NOT NULL,
    subject         text              NOT NULL,
    key             text,
    content_type    text              NOT NULL,
    correlation_id  text,
    causation_id    text,
    occurred_at     timestamptz,
    trace_parent    text,
    trace_state     text,
    headers         jsonb,
    data            bytea             NOT NULL,
    raw_headers     bytea,
    CONSTRAINT archive_decided FOREIGN KEY (handler, dedupe_key) REFERENCES postroom.inbox,
    CONSTRAINT archive_dead_why CHECK (dead_at IS NULL OR class IS NOT NULL)
);
COMMENT ON TABLE postroom.archive IS
    'Events that were given up, as they were in held. An operator or the handler discarded the event, or an operator or the producer cancelled it before it took effect or was published.';
COMMENT ON COLUMN postroom.archive.id IS
    'The id that the event had in held. If an operator brings the event back, it gets this id again. If a producer cancelled the event before the relay held it, the id is a new one from the sequence of held.';
COMMENT ON COLUMN postroom.archive.discarded_at IS
    'When the event was discarded or cancelled.';
COMMENT ON COLUMN postroom.archive.audit IS
    'The row of audit that says who gave up the event, and why.';
COMMENT ON COLUMN postroom.archive.dead_at IS
    'When the event became dead. NULL: it was cancelled, and was not dead.';
CREATE INDEX archive_time ON postroom.archive (discarded_at, id);
CREATE INDEX archive_event ON postroom.archive USING hash (event_id);
CREATE INDEX archive_owed ON postroom.archive (handler, dedupe_key) WHERE dedupe_key IS NOT NULL;
CREATE UNIQUE INDEX archive_outgoing ON postroom.archive (pos) WHERE handler = 'outbox';

-- A producer cancels a scheduled event with this function, in the producer's own transaction. The
-- function runs with the rights of the tables' owner, because a producer cannot read and change
-- held events. The search path is set, so that no SQL operator of the caller runs with these
-- rights.
--
-- Either the event is in held, or the relay has not moved it there yet. In the second case only the
-- new row of archive says that the event is cancelled. If the relay sees this row, it does not move
-- the event to held. If the relay moved the event to held before it could see this row, the relay
-- removes the event from held (internal/pglog/sql/still_due.sql).
--
-- The function takes the lock of the event first; event_lock says why. Then it reads the state of
-- the relay, and after that held. If this state says that the event was published or moved to held,
-- and held does not have the event, then the event was published. If the function read held first,
-- it could miss an event that the relay moves to held between the two reads.
--
-- In REPEATABLE READ all statements have one snapshot. The transaction may have taken it before the
-- function got the lock of the event. Between the two, an operator may have rescheduled the event,
-- and the relay may have published it. In this case the relay has changed the row of the table
-- relay, so a lock of that row fails (SQLSTATE 40001). For this reason the function locks the row.
-- It gives the lock back at once, because the relay needs the row.
--
-- If the answer is false, the function gives the lock of the event and that of the row of held back.
-- The caller's transaction may go on for long, and the relay must record and publish meanwhile.
CREATE FUNCTION postroom.cancel(source text, id text)
RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    place    bigint;
    due      timestamptz;
    own      boolean;
    recorded boolean;
    late     boolean;
    event    postroom.held%ROWTYPE;
    said     bigint;
BEGIN
    SELECT o.seq, o.not_before, o.xid = pg_current_xact_id() INTO place, due, own FROM postroom.outbox o WHERE o.source = $1 AND o.event_id = $2;
    IF NOT FOUND THEN -- retention has removed the event
        SELECT h.pos INTO place FROM postroom.held h WHERE h.event_id = $2 AND h.source = $1 AND h.handler = 'outbox' AND h.republish IS NULL;
        IF NOT FOUND THEN
            RETURN EXISTS (SELECT FROM postroom.archive a
                           WHERE a.event_id = $2 AND a.source = $1 AND a.handler = 'outbox' AND a.republish IS NULL);
        END IF;
    END IF;
    BEGIN -- a subtransaction, because its end gives the locks back
        PERFORM pg_advisory_xact_lock(postroom.event_lock(place));
        IF EXISTS (SELECT FROM postroom.archive a WHERE a.handler = 'outbox' AND a.pos = place AND a.republish IS NULL) THEN
            RETURN true; -- the event is cancelled already
        END IF;

        -- Of the events with which a relay catches up, those up to catch_up_passed were read.
        SELECT place <= r.high
               AND NOT CASE WHEN place <= r.catch_up_passed AND r.catch_up_snap::text = r.snap::text THEN r.catch_up_open ELSE r.pending END @> place
               AND (place <= r.floor
                    OR coalesce((SELECT pg_visible_in_snapshot(o.xid, r.snap) FROM postroom.outbox o WHERE o.seq = place), true)
                    --guard:cancel-of-what-a-relay-caught-up-with false
                    OR place <= r.catch_up_passed AND (SELECT pg_visible_in_snapshot(o.xid, r.catch_up_snap) FROM postroom.outbox o WHERE o.seq = place))
        INTO recorded FROM postroom.relay r;
        SELECT h.* INTO event FROM postroom.held h WHERE h.handler = 'outbox' AND h.pos = place AND h.republish IS NULL FOR UPDATE;
        IF FOUND THEN
            late := event.chain IS NOT NULL OR event.dead_at IS NULL AND event.next_at <= clock_timestamp();
        ELSE
            late :=
                --guard:cancel-of-what-was-published 1 false
                --planted:called-off-when-it-was-published false
                recorded OR due IS NULL OR due <= clock_timestamp()
                --planted:called-off-when-it-was-published/2 false
                OR EXISTS (SELECT FROM postroom.relay_checkpoint c WHERE c.published_held @> place);
        END IF;
        IF late THEN
            --guard:a-no-of-cancel-keeps-no-lock do RETURN false
            RAISE EXCEPTION 'the event may be on its way' USING ERRCODE = '23PR3';
        END IF;
    EXCEPTION WHEN SQLSTATE '23PR3' THEN
        RETURN false;
    END;
    IF event.id IS NOT NULL THEN
        DELETE FROM postroom.held h WHERE h.id = event.id;
    ELSE
        IF NOT own AND current_setting('transaction_isolation') IN ('repeatable read', 'serializable') THEN
            BEGIN
                PERFORM FROM postroom.relay
                --guard:cancel-with-one-snapshot remove
                FOR NO KEY UPDATE;
                RAISE EXCEPTION 'the row is as it was' USING ERRCODE = '23PR2';
            EXCEPTION WHEN SQLSTATE '23PR2' THEN
                NULL;
            END;
        END IF;
        -- The relay did not hold the event, so nothing has cut its values yet: see hold.sql.
        SELECT postroom.clipped(o.source, 255), postroom.clipped(o.event_id, 255), postroom.clipped(o.type, 255), postroom.clipped(o.subject, 255),
               --guard:what-is-cancelled-has-values-that-operators-can-read = o.key
               postroom.clipped(o.key, 255),
               postroom.clipped(o.content_type, 255), postroom.clipped(o.correlation_id, 255), postroom.clipped(o.causation_id, 255),
               postroom.clamped(o.occurred_at), postroom.clipped(o.trace_parent, 255), postroom.clipped(o.trace_state, 512),
               o.headers,
               CASE WHEN octet_length(o.data) > 16777216 THEN substring(o.data, 1, 16777216) ELSE o.data END,
               coalesce(postroom.clamped(greatest(o.created_at, o.not_before)), postroom.clamped(o.created_at), now()), place, 'outbox',
               nextval('postroom.held_id_seq'), now(), 0, false, 0, 0
        INTO event.source, event.event_id, event.type, event.subject, event.key, event.content_type, event.correlation_id,
             event.causation_id, event.occurred_at, event.trace_parent, event.trace_state, event.headers, event.data, event.logged_at,
             event.pos, event.handler, event.id, event.held_at, event.attempts, event.solitary, event.revision, event.replays
        FROM postroom.outbox o WHERE o.seq = place;
    END IF;
    INSERT INTO postroom.audit (actor, action, reason, events, handler, source, event_id)
    VALUES (session_user, 'cancel', 'its producer called it off', 1, 'outbox', $1, $2)
    RETURNING audit.id INTO said;
    INSERT INTO postroom.archive (id, audit, handler, pos, dead_at, held_at, attempts, solitary, class, cause, failures,
                                  first_failed_at, revision, replay, replays, republish, logged_at, source, event_id, type, subject, key,
                                  content_type, correlation_id, causation_id, occurred_at, trace_parent, trace_state, headers, data, raw_headers)
    VALUES (event.id, said, event.handler, event.pos, event.dead_at, event.held_at, event.attempts, event.solitary, event.class,
            event.cause, event.failures, event.first_failed_at, event.revision, event.replay, event.replays, event.republish,
            event.logged_at, event.source, event.event_id, event.type, event.subject, event.key, event.content_type,
            event.correlation_id, event.causation_id, event.occurred_at, event.trace_parent, event.trace_state, event.headers, event.data,
            event.raw_headers);
    RETURN true;
END
$$;
COMMENT ON FUNCTION postroom.cancel(text, text) IS
    'Cancels a scheduled event in the transaction of the caller, and returns true. If the broker refused an event, the function can also cancel the event while it is dead or waits for another attempt, if it was scheduled or has no key. The function also returns true if the event is in archive already. false: the event was published, may be on its way to the broker, was neither scheduled nor refused, blocks a key, or does not exist.';
REVOKE ALL ON FUNCTION postroom.cancel(text, text) FROM PUBLIC; -- producers call it

CREATE TABLE postroom.revision (
    held         bigint      NOT NULL,
    revision     int         NOT NULL CHECK (revision >= 0),
    replaced_at  timestamptz NOT NULL DEFAULT now(),
    audit        bigint      NOT NULL,
    event_id     text        COLLATE "C" NOT NULL,
    content_type text        NOT NULL,
    headers      jsonb,
    data         bytea       NOT NULL,
    raw_headers  bytea,
    PRIMARY KEY (held, revision)
);
COMMENT ON TABLE postroom.revision IS
    'The earlier versions of held events that an operator edited. Revision 0 is the original.';
COMMENT ON COLUMN postroom.revision.held IS
    'The id that the event has, or had, in held.';
COMMENT ON COLUMN postroom.revision.revision IS
    'The number of this version. The version that is in held now has a higher number.';
COMMENT ON COLUMN postroom.revision.replaced_at IS
    'When an edit replaced this version.';
COMMENT ON COLUMN postroom.revision.audit IS
    'The row of audit that says who edited the event, and why.';
CREATE INDEX revision_event ON postroom.revision USING hash (event_id);

--
-- Replays
--

-- Several processes may run one replay. For each step, a process locks the row of the replay.
CREATE TABLE postroom.replay (
    id               bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    created_at       timestamptz NOT NULL DEFAULT now(),
    actor            text        NOT NULL CHECK (octet_length(actor) BETWEEN 1 AND 255),
    reason           text        NOT NULL DEFAULT '' CHECK (octet_length(reason) <= 4096),

    -- What the operator asked for
    filter           jsonb       NOT NULL,
    attempts         int         NOT NULL CHECK (attempts > 0),
    rate             float8      CHECK (rate > 0),
    canary           int         NOT NULL CHECK (canary >= 0),
    stop_at          float8      NOT NULL CHECK (stop_at BETWEEN 0 AND 1),
    as_new           boolean     NOT NULL,

    -- Its progress
    state            text        NOT NULL DEFAULT 'running' CHECK (state IN ('running', 'done', 'stopped', 'cancelled')),
    phase            text        NOT NULL CHECK (phase IN ('canary', 'rest', 'ending')),
    verdict          text        CHECK (verdict IN ('stopped', 'cancelled')),
    items            int         NOT NULL CHECK (items >= 0),
    released         int         NOT NULL DEFAULT 0,
    succeeded        int         NOT NULL DEFAULT 0,
    failed           int         NOT NULL DEFAULT 0,
    passed_over      int         NOT NULL DEFAULT 0,
    before_succeeded   int       NOT NULL DEFAULT 0,
    before_failed      int       NOT NULL DEFAULT 0,
    before_passed_over int       NOT NULL DEFAULT 0,
    credit           float8      NOT NULL DEFAULT 0,
    stepped_at       timestamptz,
    ended_at         timestamptz,
    CHECK ((state = 'running') = (ended_at IS NULL)),
    -- In the years 1 to 9999, as JSON has it: one odd row must not take the list from operators.
    --guard:replays-have-times-that-tools-can-print 1 true
    CONSTRAINT replay_times CHECK (least(created_at, stepped_at, ended_at) >= '0001-01-01 00:00:00+00' AND greatest(created_at, stepped_at, ended_at) < '10000-01-01 00:00:00+00')
);
COMMENT ON TABLE postroom.replay IS
    'Replays of dead events: what the operator asked for, and the progress of each replay.';
COMMENT ON COLUMN postroom.replay.filter IS
    'The filter that the operator gave. The replay has events that were dead and matched the filter when the replay was created.';
COMMENT ON COLUMN postroom.replay.attempts IS
    'How many attempts each event has before it is dead again.';
COMMENT ON COLUMN postroom.replay.rate IS
    'How many events are released in a second, at most. NULL: no limit.';
COMMENT ON COLUMN postroom.replay.canary IS
    'How many events are released first. The other events wait until these events have ended. 0: no events are released first.';
COMMENT ON COLUMN postroom.replay.stop_at IS
    'The replay stops if the share of failed events is larger than this. Only events count that ended since the replay began or was resumed.';
COMMENT ON COLUMN postroom.replay.as_new IS
    'true: outgoing events get the time of their release as logged_at, so that consumers do not hold them as too old.';
COMMENT ON COLUMN postroom.replay.state IS
    'running: events are released, or run. done: all events have ended. stopped: too many events failed. cancelled: an operator ended the replay.';
COMMENT ON COLUMN postroom.replay.phase IS
    'canary: the first events decide whether the other events follow. rest: the other events are released. ending: no event is released, and the replay waits for the events that run.';
COMMENT ON COLUMN postroom.replay.verdict IS
    'The state that the replay gets when the events that run have ended. NULL: done.';
COMMENT ON COLUMN postroom.replay.items IS
    'How many events the replay has.';
COMMENT ON COLUMN postroom.replay.released IS
    'How many events the replay has released, so that they can run. Events that it took back, and released events that were discarded, do not count.';
COMMENT ON COLUMN postroom.replay.succeeded IS
    'How many events took effect, or were published.';
COMMENT ON COLUMN postroom.replay.failed IS
    'How many events are dead again.';
COMMENT ON COLUMN postroom.replay.passed_over IS
    'How many events the replay skipped: they were no longer dead when their turn came, they were discarded, an earlier event of their key failed, or the replay stopped or was cancelled before they ran. In the last two cases the events stay dead.';
COMMENT ON COLUMN postroom.replay.before_succeeded IS
    'How many events had succeeded when the replay was last resumed.';
COMMENT ON COLUMN postroom.replay.before_failed IS
    'How many events had failed when the replay was last resumed. They do not count for stop_at, because the fault may have been corrected since then.';
COMMENT ON COLUMN postroom.replay.before_passed_over IS
    'How many events stayed skipped when the replay was last resumed.';
COMMENT ON COLUMN postroom.replay.credit IS
    'How many more events the rate allowed the replay to release at the time stepped_at.';
COMMENT ON COLUMN postroom.replay.stepped_at IS
    'When a process last made a step of the replay. NULL: no process has made a step. If no process makes steps of a running replay, the replay is idle: released events run, and no more events are released.';
CREATE INDEX replay_running ON postroom.replay (id) WHERE state = 'running';

CREATE TABLE postroom.replay_event (
    replay         bigint      NOT NULL REFERENCES postroom.replay ON DELETE CASCADE,
    n           int         NOT NULL,
    through     int         NOT NULL CHECK (through >= n),
    held        bigint      NOT NULL,
    handler     text        NOT NULL,
    source      text        NOT NULL,
    event_id    text        COLLATE "C" NOT NULL,
    chain       text,
    dead_at     timestamptz NOT NULL,
    released_at timestamptz,
    outcome     text        CHECK (outcome IN ('succeeded', 'failed', 'withdrawn', 'discarded', 'not_dead')),
    ended_at    timestamptz,
    failures    jsonb,
    PRIMARY KEY (replay, n),
    UNIQUE (replay, held),
    CHECK ((outcome IS NULL) = (ended_at IS NULL))
);
COMMENT ON TABLE postroom.replay_event IS
    'The events of each replay, in the order in which they are released, with their outcomes. The list does not change after the replay is created.';
COMMENT ON COLUMN postroom.replay_event.n IS
    'The place of the event in the replay, from 1.';
COMMENT ON COLUMN postroom.replay_event.through IS
    'The events of a key are released together. through is the n of the last event that is released together with this event.';
COMMENT ON COLUMN postroom.replay_event.held IS
    'The id that the event has, or had, in held.';
COMMENT ON COLUMN postroom.replay_event.chain IS
    'A key that only this replay uses: the event has it as held.chain while it is released. The replay uses such a key if it has several events of one key of an ordered handler, and these events block no key. With it, the events run one after the other. NULL: the release does not change held.chain.';
COMMENT ON COLUMN postroom.replay_event.dead_at IS
    'When the event became dead, before the replay released it. If the replay takes the event back, the event gets this time again.';
COMMENT ON COLUMN postroom.replay_event.released_at IS
    'When the replay released the event. NULL: not yet.';
COMMENT ON COLUMN postroom.replay_event.outcome IS
    'succeeded: the event took effect, or was published. failed: the event is dead again. withdrawn: the event stayed dead, because the replay did not release it, or took it back before it took effect. discarded: the event is in archive. not_dead: the event was not dead when its turn came.';
COMMENT ON COLUMN postroom.replay_event.failures IS
    'The last ten failures of the event before the replay released it. The replay copies them from the row of held, because that row is removed if the event succeeds.';
CREATE INDEX replay_event_open ON postroom.replay_event (replay, n) WHERE outcome IS NULL AND released_at IS NOT NULL;
CREATE INDEX replay_event_next ON postroom.replay_event (replay, n) WHERE outcome IS NULL AND released_at IS NULL;
CREATE INDEX replay_event_event ON postroom.replay_event USING hash (event_id);

CREATE TABLE postroom.dry_run (
    id       bigint           GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    handler  postroom.handler COLLATE "C" NOT NULL,
    held     bigint           NOT NULL,
    asked_at timestamptz      NOT NULL DEFAULT now(),
    taken_by postroom.process,
    taken_at timestamptz,
    outcome  jsonb
);
COMMENT ON TABLE postroom.dry_run IS
    'Dry runs that operators ask for. A process that runs the handler runs the event in a transaction, rolls the transaction back, and writes the outcome here. The operator''s program reads the outcome and removes the row.';
COMMENT ON COLUMN postroom.dry_run.held IS
    'The id of the dead event in held.';
COMMENT ON COLUMN postroom.dry_run.outcome IS
    'The outcome of the dry run, as JSON. NULL: it has not ended.';
COMMENT ON COLUMN postroom.dry_run.taken_by IS
    'The process that does the dry run. NULL: no process has taken the dry run yet.';
COMMENT ON COLUMN postroom.dry_run.taken_at IS
    'When the process taken_by took the dry run.';
CREATE INDEX dry_run_open ON postroom.dry_run (handler, id) WHERE taken_by IS NULL;

--
-- What users may read
--
-- The columns have the names that they have in the JSON of the command line. Users may rely on these
-- two views; held itself may change. A view reads held with the rights of its owner, so only roles
-- that may read held get it. The conditions on a state are those of internal/held/sql/of_event.sql.

CREATE VIEW postroom.dead AS
    SELECT h.id, h.handler::text, h.dead_at, h.held_at, h.first_failed_at, h.attempts::int, h.class::text, encode(h.cause, 'hex') AS cause,
           h.failures -> -1 ->> 'text' AS error, h.failures::jsonb, h.key, h.chain AS blocked_key, h.revision, h.replay AS replay_id,
           h.logged_at, h.source, h.event_id, h.type, h.subject, h.content_type, h.correlation_id, h.causation_id, h.headers, h.data
    FROM postroom.held h
    WHERE h.dead_at IS NOT NULL;
COMMENT ON VIEW postroom.dead IS
    'The dead events. Users may rely on the names and types of the columns.';
COMMENT ON COLUMN postroom.dead.handler IS
    'The handler of the event. outbox: an outgoing event that the broker refused.';
COMMENT ON COLUMN postroom.dead.cause IS
    'Failures with the same cause have the same value, in hexadecimal digits as on the command line.';
COMMENT ON COLUMN postroom.dead.error IS
    'The text of the last failure.';
COMMENT ON COLUMN postroom.dead.failures IS
    'The last ten failures, each with at, class and text.';
COMMENT ON COLUMN postroom.dead.blocked_key IS
    'The key whose later events wait behind this event. NULL: no event waits.';
COMMENT ON COLUMN postroom.dead.replay_id IS
    'The replay that last had the event.';

CREATE VIEW postroom.waiting AS
    SELECT h.id, h.handler::text,
           CASE WHEN h.next_at IS NULL THEN 'waiting'
                WHEN h.claimed_by IS NOT NULL THEN CASE WHEN h.next_at > now() OR h.handler = 'outbox' THEN 'running' ELSE 'abandoned' END
                WHEN h.next_at <= now() THEN 'due'
                WHEN h.class IS NULL AND h.chain IS NULL THEN 'scheduled'
                ELSE 'retrying' END AS state,
           h.next_at, h.held_at, h.first_failed_at, h.attempts::int, h.class::text, encode(h.cause, 'hex') AS cause,
           h.failures -> -1 ->> 'text' AS error, h.failures::jsonb, h.claimed_by::text, h.key, h.chain AS blocked_key, h.revision, h.replay AS replay_id,
           h.logged_at, h.source, h.event_id, h.type, h.subject, h.content_type, h.correlation_id, h.causation_id, h.headers, h.data
    FROM postroom.held h
    WHERE h.dead_at IS NULL;
COMMENT ON VIEW postroom.waiting IS
    'The held events that are not dead: they run when they are due. Users may rely on the names and types of the columns.';
COMMENT ON COLUMN postroom.waiting.handler IS
    'The handler of the event. outbox: an outgoing event.';
COMMENT ON COLUMN postroom.waiting.state IS
    'scheduled: at next_at it is published for the first time. retrying: at next_at it is tried again. due: next_at has come. running: a process runs it. abandoned: the process that ran it died or stalled. waiting: it waits behind an earlier event of its key.';
COMMENT ON COLUMN postroom.waiting.next_at IS
    'When the event is due. While a process runs it: when the claim of the process ends. NULL: it waits behind an earlier event of its key.';
COMMENT ON COLUMN postroom.waiting.cause IS
    'Failures with the same cause have the same value, in hexadecimal digits as on the command line.';
COMMENT ON COLUMN postroom.waiting.error IS
    'The text of the last failure.';
COMMENT ON COLUMN postroom.waiting.failures IS
    'The last ten failures, each with at, class and text.';
COMMENT ON COLUMN postroom.waiting.claimed_by IS
    'The process that runs the event.';
COMMENT ON COLUMN postroom.waiting.blocked_key IS
    'The key in whose order the event runs: it waits behind earlier events of the key, or later ones wait behind it.';
COMMENT ON COLUMN postroom.waiting.replay_id IS
    'The replay that last had the event.';

--
-- Searching
--
-- Lists, counts and replays use the conditions of these two functions. If an argument is NULL,
-- there is no condition for it. The planner inlines the functions, and uses the indexes that fit
-- the arguments.

CREATE FUNCTION postroom.dead_letters(ids bigint[], handler text, type text, key text, class text, cause bytea, source text,
                                      event_id text, text text, since timestamptz, until timestamptz)
RETURNS SETOF postroom.held
LANGUAGE sql STABLE
AS $$
    SELECT h.*
    FROM postroom.held h
    WHERE h.dead_at IS NOT NULL
      AND ($1 IS NULL OR h.id = ANY ($1))
      AND ($2 IS NULL OR h.handler = $2)
      AND ($3 IS NULL OR h.type = $3)
      AND ($4 IS NULL OR h.key = $4)
      AND ($5 IS NULL OR h.class = $5)
      AND ($6 IS NULL OR h.cause = $6)
      AND ($7 IS NULL OR h.source = $7)
      AND ($8 IS NULL OR h.event_id = $8)
      AND ($9 IS NULL OR position(pg_catalog.convert_to($9, 'UTF8') IN h.data) > 0
           OR EXISTS (SELECT FROM jsonb_array_elements(h.failures) f WHERE strpos(lower(f ->> 'text'), lower($9)) > 0))
      AND ($10 IS NULL OR h.dead_at >= $10)
      AND ($11 IS NULL OR h.dead_at < $11)
$$;
REVOKE ALL ON FUNCTION postroom.dead_letters FROM PUBLIC; -- operators call it
COMMENT ON FUNCTION postroom.dead_letters(bigint[], text, text, text, text, bytea, text, text, text, timestamptz, timestamptz) IS
    'Internal. Returns the dead events that match all arguments. An argument that is NULL matches every event. An event matches the argument text if its data contains exactly these bytes, or if the text of one of its failures contains the argument. In the texts of failures, upper and lower case are the same. since and until are limits for dead_at.';

CREATE FUNCTION postroom.discarded(ids bigint[], handler text, type text, key text, class text, cause bytea, source text,
                                   event_id text, text text, since timestamptz, until timestamptz)
RETURNS SETOF postroom.archive
LANGUAGE sql STABLE
AS $$
    SELECT h.*
    FROM postroom.archive h
    WHERE ($1 IS NULL OR h.id = ANY ($1))
      AND ($2 IS NULL OR h.handler = $2)
      AND ($3 IS NULL OR h.type = $3)
      AND ($4 IS NULL OR h.key = $4)
      AND ($5 IS NULL OR h.class = $5)
      AND ($6 IS NULL OR h.cause = $6)
      AND ($7 IS NULL OR h.source = $7)
      AND ($8 IS NULL OR h.event_id = $8)
      AND ($9 IS NULL OR position(pg_catalog.convert_to($9, 'UTF8') IN h.data) > 0
           OR EXISTS (SELECT FROM jsonb_array_elements(h.failures) f WHERE strpos(lower(f ->> 'text'), lower($9)) > 0))
      AND ($10 IS NULL OR h.discarded_at >= $10)
      AND ($11 IS NULL OR h.discarded_at < $11)
$$;
REVOKE ALL ON FUNCTION postroom.discarded FROM PUBLIC; -- operators call it
COMMENT ON FUNCTION postroom.discarded(bigint[], text, text, text, text, bytea, text, text, text, timestamptz, timestamptz) IS
    'Internal. Returns the events of archive that match all arguments, as dead_letters does. since and until are limits for discarded_at.';

--
-- Acts of operators in SQL
--
-- Each act writes a row of audit in its transaction, as the command line and package deadletter do.

-- The function changes only events that wait for another attempt: not scheduled ones, and not those
-- that run, are dead or wait behind another. It passes over rows that another transaction has locked.
--
-- Locks   the rows that it makes due.
-- Index   held_due.
-- Called  by operators: grant_operator gives them the right. It runs with their rights.
CREATE FUNCTION postroom.retry(handler text, actor text, reason text DEFAULT '', most int DEFAULT 10000)
RETURNS bigint
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    moved bigint;
BEGIN
    WITH due AS MATERIALIZED (
        SELECT h.id FROM postroom.held h
        WHERE h.handler = $1 AND h.next_at > clock_timestamp() AND h.claimed_by IS NULL
          --guard:retry-publishes-no-scheduled-event 1 true
          AND (h.class IS NOT NULL OR h.chain IS NOT NULL)
        ORDER BY h.next_at, h.pos
        LIMIT coalesce($4, 10000)
        FOR UPDATE SKIP LOCKED
    ), now_due AS (
        UPDATE postroom.held h SET next_at = clock_timestamp(), epoch = h.epoch + 1 FROM due WHERE h.id = due.id RETURNING h.id
    )
    SELECT count(*) INTO moved FROM now_due;
    IF moved > 0 THEN
        INSERT INTO postroom.audit (actor, action, reason, events, handler) VALUES ($2, 'retry', $3, moved, $1);
    END IF;
    RETURN moved;
END
$$;
REVOKE ALL ON FUNCTION postroom.retry FROM PUBLIC; -- operators call it
COMMENT ON FUNCTION postroom.retry(text, text, text, int) IS
    'Makes the events of a handler that wait for another attempt due now: at most so many as most says, those first that would be due first. The handler outbox means events that the broker refused. Returns how many events it made due; if these are as many as most says, call it again. actor and reason go into audit.';

-- The function runs with the rights of the tables' owner, because no operator may delete from the log.
-- It refuses an event that the relay has not published, that a republish still has to publish, or that is
-- held, so that no event is lost. If an event is cancelled, it waits until the relay has passed it, because
-- only the row of archive keeps the relay from holding it. The row of inbox stays: because of it, the
-- handler does not run again if the stream delivers the event again. Each check needs a new snapshot.
--
-- Locks   event_lock(0) shared, so that retention does not wait for it; then the rows of archive, outbox,
--         refused, revision, inbox and receipt that it removes or empties.
-- Index   the unique index (source, event_id) of outbox, the indexes on event_id of held, archive and
--         replay_event, and for each handler the primary keys of inbox and receipt.
-- Called  by operators: grant_operator gives them the right.
CREATE FUNCTION postroom.forget(source text, id text, actor text, reason text, dedupe_key text DEFAULT NULL)
RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    place    bigint;
    recorded boolean;
    holder   text;
    copies   bigint[];
    handlers text[];
    decided  text := coalesce($5, $1 || ' ' || $2);
    n        bigint;
    changed  bigint := 0;
BEGIN
    IF coalesce($4, '') = '' THEN
        RAISE EXCEPTION 'the reason is empty: say why' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    --guard:forget-trusts-no-old-snapshot false
    IF current_setting('transaction_isolation') IN ('repeatable read', 'serializable') THEN
        RAISE EXCEPTION 'the snapshot of the transaction may be too old' USING ERRCODE = 'object_not_in_prerequisite_state', HINT = 'Call forget in a READ COMMITTED transaction.';
    END IF;
    PERFORM pg_advisory_xact_lock_shared(postroom.event_lock(0::bigint)); -- see internal/pglog/sql/prune.sql
    SELECT o.seq INTO place FROM postroom.outbox o WHERE o.source = $1 AND o.event_id = $2;
    IF place IS NOT NULL THEN
        -- as cancel has it; while the relay catches up with a backlog, no event of the backlog counts as published
        SELECT place <= r.high AND NOT r.pending @> place
               AND (place <= r.floor OR coalesce((SELECT pg_visible_in_snapshot(o.xid, r.snap) FROM postroom.outbox o WHERE o.seq = place), true))
        INTO recorded FROM postroom.relay r;
        --guard:forget-loses-no-event-that-is-not-published false
        IF recorded IS NOT TRUE THEN
            RAISE EXCEPTION 'the event is not published yet' USING ERRCODE = 'object_in_use', HINT = 'Wait until the relay has published it, or cancel it.';
        END IF;
        --guard:forget-leaves-a-republish-its-events false
        IF EXISTS (SELECT FROM postroom.republish p
                   WHERE p.state = 'running' AND (p.pending @> place OR place > p.passed AND place BETWEEN p.lo AND p.hi AND coalesce(p.seqs @> place, true))) THEN
            RAISE EXCEPTION 'a republish still has to publish the event' USING ERRCODE = 'object_in_use', HINT = 'Wait until it has ended, or cancel it.';
        END IF;
    END IF;

    copies := ARRAY(SELECT a.id FROM postroom.archive a WHERE a.event_id = $2 AND a.source = $1
                    UNION SELECT i.held FROM postroom.replay_event i WHERE i.event_id = $2 AND i.source = $1);
    WITH RECURSIVE known (handler) AS ( -- one entry of the primary key for each handler
        (SELECT i.handler::text FROM postroom.inbox i ORDER BY i.handler LIMIT 1)
        UNION ALL
        SELECT (SELECT i.handler::text FROM postroom.inbox i WHERE i.handler > known.handler ORDER BY i.handler LIMIT 1) FROM known WHERE known.handler IS NOT NULL
    )
    SELECT array_agg(known.handler) INTO handlers FROM known WHERE known.handler IS NOT NULL;

    --guard:forget-waits-for-an-event-that-is-reopened remove
    PERFORM FROM postroom.archive a WHERE a.event_id = $2 AND a.source = $1 ORDER BY a.id FOR UPDATE;
    -- This is read last, because the relay moves an event to held when it records it, and an operator when
    -- he reopens it. Another event may be held under the same dedupe key, and its receipts must stay.
    SELECT h.handler INTO holder FROM postroom.held h
    WHERE h.event_id = $2 AND h.source = $1
       --guard:forget-finds-what-is-held-under-a-shorter-id false
       OR h.handler = 'outbox' AND h.pos = place -- its id may be cut: see hold.sql
       --guard:forget-removes-no-receipt-of-what-is-held false
       OR h.handler = ANY (handlers) AND h.dedupe_key = decided
    LIMIT 1;
    --guard:forget-loses-no-event-that-is-held false
    IF holder IS NOT NULL THEN
        RAISE EXCEPTION 'the event is held for %', holder
            USING ERRCODE = 'object_in_use', HINT = 'Wait until it has ended, or give it up: cancel it, or discard it if it is dead.';
    END IF;

    --guard:forget-makes-no-success-of-a-discarded-event false
    IF EXISTS (SELECT FROM postroom.archive a JOIN postroom.replay_event i ON i.event_id = $2 AND i.held = a.id
               WHERE a.event_id = $2 AND a.source = $1 AND i.released_at IS NOT NULL AND i.outcome IS NULL) THEN
        RAISE EXCEPTION 'a replay has not recorded yet that the event was discarded' USING ERRCODE = 'object_in_use', HINT = 'Wait until the replay goes on, or cancel it.';
    END IF;

    -- Retention locks the rows of outbox and refused in this order, and the sweep those of inbox and receipt.
    DELETE FROM postroom.outbox o WHERE o.seq = place;
    GET DIAGNOSTICS n = ROW_COUNT;
    changed := changed + n;
    DELETE FROM postroom.refused f WHERE f.seq = place;
    GET DIAGNOSTICS n = ROW_COUNT;
    changed := changed + n;
    DELETE FROM postroom.revision r WHERE r.held = ANY (copies);
    GET DIAGNOSTICS n = ROW_COUNT;
    changed := changed + n;
    DELETE FROM postroom.archive a WHERE a.event_id = $2 AND a.source = $1;
    GET DIAGNOSTICS n = ROW_COUNT;
    changed := changed + n;
    --guard:forget-deadlocks-with-no-sweep remove
    PERFORM FROM postroom.inbox i WHERE i.handler = ANY (handlers) AND i.dedupe_key = decided ORDER BY i.handler FOR NO KEY UPDATE;
    DELETE FROM postroom.receipt r WHERE r.handler = ANY (handlers) AND r.dedupe_key = decided;
    GET DIAGNOSTICS n = ROW_COUNT;
    changed := changed + n;
    UPDATE postroom.inbox i SET failures = NULL, result = NULL
    WHERE i.handler = ANY (handlers) AND i.dedupe_key = decided AND (i.failures IS NOT NULL OR i.result IS NOT NULL);
    GET DIAGNOSTICS n = ROW_COUNT;
    changed := changed + n;
    UPDATE postroom.replay_event i SET failures = NULL WHERE i.event_id = $2 AND i.source = $1 AND i.failures IS NOT NULL;
    GET DIAGNOSTICS n = ROW_COUNT;
    changed := changed + n;
    IF changed > 0 THEN
        INSERT INTO postroom.audit (actor, action, reason, events, source, event_id) VALUES ($3, 'forget', $4, 1, $1, $2);
    END IF;
    RETURN changed;
END
$$;
REVOKE ALL ON FUNCTION postroom.forget FROM PUBLIC; -- operators call it
COMMENT ON FUNCTION postroom.forget(text, text, text, text, text) IS
    'Removes the content of one event from the database: from the log, the archive, earlier versions, the results of steps and handlers, and the texts of failures. Raises SQLSTATE 55006 and changes nothing if the event is not published yet, if a running republish still has to publish it, if it is held, or another event with this dedupe_key, or if a replay has not recorded yet that it was discarded. Raises SQLSTATE 55000 if the transaction is not READ COMMITTED. Returns how many rows it removed or emptied. actor and reason go into audit. dedupe_key: the key of the event at handlers that have a DedupeKey function.';

--
-- Rights
--

CREATE FUNCTION postroom.grant_operator(role regrole)
RETURNS void
LANGUAGE sql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT postroom.grant_all(ARRAY[
        pg_catalog.format('USAGE ON SCHEMA %s', 'postroom'::regnamespace),
        'SELECT ON postroom.migration, postroom.instance, postroom.outbox, postroom.unchecked, postroom.relay, postroom.relay_checkpoint,
                   postroom.refused, postroom.republish, postroom.inbox, postroom.held, postroom.dead, postroom.waiting, postroom.receipt,
                   postroom.subscription, postroom.node, postroom.dedupe_window, postroom.sweep, postroom.filter,
                   postroom.audit, postroom.pause, postroom.archive, postroom.revision, postroom.replay, postroom.replay_event,
                   postroom.dry_run, postroom.idempotency, postroom.saga_definition, postroom.saga_known, postroom.saga,
                   postroom.saga_step, postroom.saga_decision', -- by their names, because the schema may have tables of others
        'SELECT (id, account, url, types, rotated_at, created_at, disabled_at, disabled_reason, failing_since, paused_until,
                 last_status, last_at) ON postroom.webhook_endpoint', -- all columns except secrets
        'UPDATE (disabled_at, disabled_reason, failing_since, paused_until) ON postroom.webhook_endpoint',
        'SELECT ON SEQUENCE postroom.outbox_seq_seq, postroom.relay_checkpoint_id_seq, postroom.republish_id_seq, postroom.held_id_seq,
                            postroom.audit_id_seq, postroom.replay_id_seq, postroom.dry_run_id_seq, postroom.saga_step_id_seq',
        'INSERT, UPDATE, DELETE ON postroom.held, postroom.archive, postroom.replay, postroom.replay_event, postroom.dry_run,
                                   postroom.revision, postroom.receipt, postroom.pause',
        'INSERT, UPDATE ON postroom.republish',
        'INSERT (actor, action, reason, events, handler, source, event_id, replay, details) ON postroom.audit',
        'UPDATE (at, discarded) ON postroom.inbox',
        --guard:operators-do-not-change-what-is-published do 'UPDATE ON postroom.relay'
        'UPDATE (only_one) ON postroom.relay', -- to lock the row; the column has only one possible value
        'EXECUTE ON FUNCTION postroom.key_lock, postroom.event_lock, postroom.clipped, postroom.clamped,
                             postroom.header_bytes, postroom.dead_letters, postroom.discarded, postroom.decide_saga,
                             postroom.retry, postroom.forget'
    ], role)
$$;
REVOKE ALL ON FUNCTION postroom.grant_operator FROM PUBLIC; -- the owner calls it
COMMENT ON FUNCTION postroom.grant_operator(regrole) IS
    'Grants a role only the rights that an operator needs. The role can read everything except secrets, and cannot change or remove a row of audit. Call the function as the owner of the tables. migrate up and schema.Migrate repeat the grant; after a migration with another tool, call the function again.';
