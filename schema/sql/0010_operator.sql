-- What operators do with events that are held, and the record of it.
--
-- Additive: code of version 9 counts attempts as ever, so that what is released here
-- after its last is dead again before it runs, of class crash, and publishes what is
-- replayed under the id that it had before. Its sweep of the ledger stops at a row that
-- an archived event still has, once that is older than the ledger. So stop inboxes of
-- version 9 before the first replay. The index on the log reads
-- it once, and keeps producers waiting for as long.

ALTER TABLE postroom.held
    ADD COLUMN job          bigint,
    ADD COLUMN last_attempt int CHECK (last_attempt > 0),
    ADD COLUMN replays      int NOT NULL DEFAULT 0 CHECK (replays >= 0);
COMMENT ON COLUMN postroom.held.job IS
    'The replay that it is, or was last, part of.';
COMMENT ON COLUMN postroom.held.last_attempt IS
    'The attempt after which it is dead again, since an operator released it. NULL: as its handler says.';
COMMENT ON COLUMN postroom.held.replays IS
    'How often an outgoing event was released: each time it is published under an id of its own.';

-- Operators look at what is dead: all of it, of a handler, of one cause.
CREATE INDEX held_dead ON postroom.held (dead_at, id) WHERE dead_at IS NOT NULL;
CREATE INDEX held_dead_handler ON postroom.held (handler, dead_at, id) WHERE dead_at IS NOT NULL;
CREATE INDEX held_dead_cause ON postroom.held (fingerprint, dead_at, id) WHERE dead_at IS NOT NULL;

-- Ids come from anywhere, and may be longer than a B-tree takes.
CREATE INDEX held_event ON postroom.held USING hash (event_id);

-- What an event caused. Events that nobody caused have no entry.
CREATE INDEX outbox_causation ON postroom.outbox (causation_id) WHERE causation_id IS NOT NULL;

-- Each action of an operator, written in its transaction.
CREATE TABLE postroom.audit (
    id       bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at       timestamptz NOT NULL DEFAULT now(),
    actor    text        NOT NULL CHECK (octet_length(actor) BETWEEN 1 AND 255),
    action   text        NOT NULL CHECK (octet_length(action) BETWEEN 1 AND 64),
    reason   text        NOT NULL DEFAULT '' CHECK (octet_length(reason) <= 4096),
    events   bigint      NOT NULL CHECK (events >= 0),
    handler  text,
    source   text,
    event_id text,
    job      bigint,
    details  jsonb
);
CREATE INDEX audit_event ON postroom.audit USING hash (event_id) WHERE event_id IS NOT NULL;
CREATE INDEX audit_job ON postroom.audit (job) WHERE job IS NOT NULL;
COMMENT ON TABLE postroom.audit IS
    'What operators did: who, what, why, and to how many events. Rows are only ever added.';
COMMENT ON COLUMN postroom.audit.event_id IS
    'The event, of an action on one.';
COMMENT ON COLUMN postroom.audit.details IS
    'What the action was asked to do: the filter and the options.';

-- Discarded events. Their rows in the ledger stay, so that they stay discarded when
-- they come again, and can be brought back.
CREATE TABLE postroom.archive (
    id              bigint      PRIMARY KEY,
    discarded_at    timestamptz NOT NULL DEFAULT now(),
    audit           bigint      NOT NULL,

    handler         postroom.holder NOT NULL,
    dedupe_key      text,
    pos             bigint,
    dead_at         timestamptz NOT NULL,
    held_at         timestamptz NOT NULL,
    attempts        postroom.attempts NOT NULL,
    solitary        boolean     NOT NULL,
    class           postroom.class NOT NULL,
    fingerprint     postroom.digest,
    failures        postroom.failures,
    first_failed_at timestamptz,
    revision        int         NOT NULL,
    job             bigint,
    replays         int         NOT NULL,

    logged_at       timestamptz NOT NULL,
    source          text        NOT NULL,
    event_id        text        NOT NULL,
    type            text        NOT NULL,
    subject         text        NOT NULL,
    event_key       text,
    content_type    text        NOT NULL,
    correlation_id  text,
    causation_id    text,
    occurred_at     timestamptz,
    trace_parent    text,
    trace_state     text,
    headers         jsonb,
    data            bytea       NOT NULL,
    raw_headers     bytea,
    CONSTRAINT archive_decided FOREIGN KEY (handler, dedupe_key) REFERENCES postroom.inbox
);
CREATE INDEX archive_time ON postroom.archive (discarded_at, id);
CREATE INDEX archive_event ON postroom.archive USING hash (event_id);
CREATE INDEX archive_owed ON postroom.archive (handler, dedupe_key) WHERE dedupe_key IS NOT NULL;
CREATE UNIQUE INDEX archive_outgoing ON postroom.archive (pos) WHERE handler = 'outbox';
COMMENT ON TABLE postroom.archive IS
    'Events that operators discarded, as they were held.';
COMMENT ON COLUMN postroom.archive.id IS
    'The id that the event had in held, and has again when it is reopened.';
COMMENT ON COLUMN postroom.archive.audit IS
    'Who discarded it, when and why.';

-- What an event was before it was edited.
CREATE TABLE postroom.revision (
    held         bigint      NOT NULL,
    revision     int         NOT NULL CHECK (revision >= 0),
    replaced_at  timestamptz NOT NULL DEFAULT now(),
    audit        bigint      NOT NULL,
    event_id     text        NOT NULL,
    content_type text        NOT NULL,
    headers      jsonb,
    data         bytea       NOT NULL,
    raw_headers  bytea,
    PRIMARY KEY (held, revision)
);
CREATE INDEX revision_event ON postroom.revision USING hash (event_id);
COMMENT ON TABLE postroom.revision IS
    'What held events were before they were edited. Revision 0 is the original.';
COMMENT ON COLUMN postroom.revision.held IS
    'The id that the event has, or had, in held.';

-- A replay of dead events. Whoever drives it locks its row for each step, so that any
-- number may.
CREATE TABLE postroom.job (
    id          bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    created_at  timestamptz NOT NULL DEFAULT now(),
    actor       text        NOT NULL CHECK (octet_length(actor) BETWEEN 1 AND 255),
    reason      text        NOT NULL DEFAULT '' CHECK (octet_length(reason) <= 4096),
    filter      jsonb       NOT NULL,
    attempts    int         NOT NULL CHECK (attempts > 0),
    rate        float8      CHECK (rate > 0),
    canary      int         NOT NULL CHECK (canary >= 0),
    stop_at     float8      NOT NULL CHECK (stop_at BETWEEN 0 AND 1),
    as_new      boolean     NOT NULL,

    state       text        NOT NULL DEFAULT 'running' CHECK (state IN ('running', 'done', 'stopped', 'cancelled')),
    phase       text        NOT NULL CHECK (phase IN ('canary', 'rest', 'ending')),
    verdict     text        CHECK (verdict IN ('stopped', 'cancelled')),
    items       int         NOT NULL CHECK (items >= 0),
    released    int         NOT NULL DEFAULT 0,
    succeeded   int         NOT NULL DEFAULT 0,
    failed      int         NOT NULL DEFAULT 0,
    passed_over int         NOT NULL DEFAULT 0,
    before_succeeded int    NOT NULL DEFAULT 0,
    before_failed    int    NOT NULL DEFAULT 0,
    credit      float8      NOT NULL DEFAULT 0,
    stepped_at  timestamptz,
    ended_at    timestamptz,
    CHECK ((state = 'running') = (ended_at IS NULL))
);
CREATE INDEX job_running ON postroom.job (id) WHERE state = 'running';
COMMENT ON TABLE postroom.job IS
    'Replays of dead events: what was asked for, and how far each is.';
COMMENT ON COLUMN postroom.job.attempts IS
    'How many attempts each of its events has before it is dead again.';
COMMENT ON COLUMN postroom.job.rate IS
    'How many events are released in a second, at the most. NULL: as many as are handled.';
COMMENT ON COLUMN postroom.job.phase IS
    'canary: the first events decide whether the others follow. ending: nothing is released any more, and what runs is waited for.';
COMMENT ON COLUMN postroom.job.verdict IS
    'What its state will be when the events that run have ended.';
COMMENT ON COLUMN postroom.job.canary IS
    'How many are released first; the others wait until none of them is open. 0: none.';
COMMENT ON COLUMN postroom.job.stop_at IS
    'It stops when a larger share of the events that ended failed.';
COMMENT ON COLUMN postroom.job.passed_over IS
    'Events that were not dead any more when their turn came, or stay dead behind one of their key that failed.';
COMMENT ON COLUMN postroom.job.before_succeeded IS
    'Of those that succeeded, how many did before it was last resumed.';
COMMENT ON COLUMN postroom.job.before_failed IS
    'Of those that failed, how many did before it was last resumed: what was mended since does not count for stop_at.';
COMMENT ON COLUMN postroom.job.credit IS
    'Events that may be released by the rate and were not yet.';
COMMENT ON COLUMN postroom.job.stepped_at IS
    'When somebody last drove it. A running job that nobody drives rests where it is.';

-- The events of a replay, fixed when it is made, in the order in which they are released.
CREATE TABLE postroom.job_item (
    job         bigint      NOT NULL REFERENCES postroom.job ON DELETE CASCADE,
    n           int         NOT NULL,
    through     int         NOT NULL CHECK (through >= n),
    held        bigint      NOT NULL,
    handler     text        NOT NULL,
    source      text        NOT NULL,
    event_id    text        NOT NULL,
    chain       text,
    dead_at     timestamptz NOT NULL,
    released_at timestamptz,
    outcome     text        CHECK (outcome IN ('succeeded', 'failed', 'withdrawn', 'discarded', 'not_dead')),
    ended_at    timestamptz,
    PRIMARY KEY (job, n),
    UNIQUE (job, held),
    CHECK ((outcome IS NULL) = (ended_at IS NULL))
);
CREATE INDEX job_item_open ON postroom.job_item (job, n) WHERE outcome IS NULL AND released_at IS NOT NULL;
CREATE INDEX job_item_next ON postroom.job_item (job, n) WHERE outcome IS NULL AND released_at IS NULL;
CREATE INDEX job_item_event ON postroom.job_item USING hash (event_id);
COMMENT ON TABLE postroom.job_item IS
    'The events of each replay, and what became of them.';
COMMENT ON COLUMN postroom.job_item.through IS
    'The last event that is released together with it: those of a key are.';
COMMENT ON COLUMN postroom.job_item.chain IS
    'The key in held under which it is released: events of one key of an ordered handler run one after the other also where they hold up no other.';
COMMENT ON COLUMN postroom.job_item.dead_at IS
    'When it died. It has that time again where it is withdrawn.';
COMMENT ON COLUMN postroom.job_item.outcome IS
    'succeeded; failed, it is dead again; withdrawn, it was not tried and is as it was; discarded; not_dead, when its turn came.';

-- What an operator wants tried: a process that has the handler runs it in a
-- transaction that it rolls back, and tells.
CREATE TABLE postroom.trial (
    id       bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    handler  postroom.handler NOT NULL,
    held     bigint      NOT NULL,
    asked_at timestamptz NOT NULL DEFAULT now(),
    taken_by postroom.process,
    taken_at timestamptz,
    outcome  jsonb
);
CREATE INDEX trial_open ON postroom.trial (handler, id) WHERE taken_by IS NULL;
COMMENT ON TABLE postroom.trial IS
    'Dry runs that were asked for. Whoever asked removes the row.';

-- Which events are dead, and which were discarded, as operators look for them: one
-- predicate, for lists, counts and replays. What is NULL does not matter. The planner
-- takes these apart, so that the indexes on what is asked for are used.
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
      AND ($4 IS NULL OR h.event_key = $4)
      AND ($5 IS NULL OR h.class = $5)
      AND ($6 IS NULL OR h.fingerprint = $6)
      AND ($7 IS NULL OR h.source = $7)
      AND ($8 IS NULL OR h.event_id = $8)
      AND ($9 IS NULL OR position(convert_to($9, 'UTF8') IN h.data) > 0
           OR EXISTS (SELECT FROM jsonb_array_elements(h.failures) f WHERE strpos(lower(f ->> 'text'), lower($9)) > 0))
      AND ($10 IS NULL OR h.dead_at >= $10)
      AND ($11 IS NULL OR h.dead_at < $11)
$$;
COMMENT ON FUNCTION postroom.dead_letters(bigint[], text, text, text, text, bytea, text, text, text, timestamptz, timestamptz) IS
    'The dead events with these properties. text is looked for in the body, byte by byte, and in the texts of the failures, in any case.';

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
      AND ($4 IS NULL OR h.event_key = $4)
      AND ($5 IS NULL OR h.class = $5)
      AND ($6 IS NULL OR h.fingerprint = $6)
      AND ($7 IS NULL OR h.source = $7)
      AND ($8 IS NULL OR h.event_id = $8)
      AND ($9 IS NULL OR position(convert_to($9, 'UTF8') IN h.data) > 0
           OR EXISTS (SELECT FROM jsonb_array_elements(h.failures) f WHERE strpos(lower(f ->> 'text'), lower($9)) > 0))
      AND ($10 IS NULL OR h.discarded_at >= $10)
      AND ($11 IS NULL OR h.discarded_at < $11)
$$;
COMMENT ON FUNCTION postroom.discarded(bigint[], text, text, text, text, bytea, text, text, text, timestamptz, timestamptz) IS
    'The discarded events with these properties, as in dead_letters; the times are those of the discarding.';
