-- Sagas: a row for each instance, and the history of its steps.
--
-- Locks   nothing that is in use: every object is new.
-- Called  by Migrate and Print, as the fifth migration.

-- Rules on one column are in domains, as 0002_inbox.sql says: a CHECK of a table would take more
-- time than the rest of a step's statement.
CREATE DOMAIN postroom.saga_name AS text
    CONSTRAINT saga_name_check CHECK (octet_length(VALUE) BETWEEN 1 AND 128);
COMMENT ON DOMAIN postroom.saga_name IS
    'The name of a saga. The types of its deadline events and decision events begin with this name.';

CREATE DOMAIN postroom.saga_key AS text
    CONSTRAINT saga_key_check CHECK (octet_length(VALUE) BETWEEN 1 AND 255);
COMMENT ON DOMAIN postroom.saga_key IS
    'The key of an instance, and of its commands and replies.';

CREATE DOMAIN postroom.saga_state AS text
    CONSTRAINT saga_state_check CHECK (VALUE IN ('running', 'compensating', 'done', 'undone'));
COMMENT ON DOMAIN postroom.saga_state IS
    'The state of an instance. done and undone are final.';

CREATE DOMAIN postroom.saga_data AS bytea
    CONSTRAINT saga_data_check CHECK (octet_length(VALUE) <= 983040);
COMMENT ON DOMAIN postroom.saga_data IS
    'The data of an instance, as its program encodes it: 960 KiB at most.';

CREATE DOMAIN postroom.saga_direction AS text
    CONSTRAINT saga_direction_check CHECK (VALUE IN ('do', 'undo'));
COMMENT ON DOMAIN postroom.saga_direction IS
    'do: the saga was doing the step. undo: the saga was undoing the step.';

REVOKE ALL ON DOMAIN postroom.saga_name, postroom.saga_key, postroom.saga_state, postroom.saga_data, postroom.saga_direction FROM PUBLIC; -- as 0001_log.sql says

CREATE TABLE postroom.saga_definition (
    name       text        COLLATE "C" NOT NULL CHECK (octet_length(name) BETWEEN 1 AND 128),
    version    int         NOT NULL CHECK (version >= 1),
    steps      jsonb       NOT NULL CHECK (jsonb_typeof(steps) = 'array'),
    stuck      interval    NOT NULL CHECK (stuck > '0' AND stuck <= '300 years'),
    prefix     text        NOT NULL DEFAULT '',
    created_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (name, version)
);
COMMENT ON TABLE postroom.saga_definition IS
    'The definitions of sagas that processes have run, so that tools can show a saga without its program.';
COMMENT ON COLUMN postroom.saga_definition.name IS
    'The name of the saga. The types of its deadline events and decision events begin with this name.';
COMMENT ON COLUMN postroom.saga_definition.version IS
    'The version of the definition. An instance keeps the version with which it began.';
COMMENT ON COLUMN postroom.saga_definition.steps IS
    'The steps in their order. Each step has its name, the types of its commands, and the types of the replies that it waits for. A later program may add and remove types of replies, if one type of each reply stays.';
COMMENT ON COLUMN postroom.saga_definition.stuck IS
    'How long an instance waits for a step without a deadline before it counts as stuck. If the step has a deadline, the instance counts as stuck five minutes after it.';
COMMENT ON COLUMN postroom.saga_definition.prefix IS
    'The subject of an event of the saga is this prefix, a dot and the type. Empty: the subject is the type.';

-- No index has a column that changes with each step. So the updates of a step need no index entries
-- (HOT). For this reason an index has waits_hour in place of waits_since: waits_hour changes
-- only with the hour.
CREATE TABLE postroom.saga (
    name           postroom.saga_name  COLLATE "C" NOT NULL,
    key            postroom.saga_key   COLLATE "C" NOT NULL,
    version        int                 NOT NULL,
    state          postroom.saga_state COLLATE "C" NOT NULL,
    step           text                NOT NULL,
    run            int                 NOT NULL DEFAULT 1,
    revision       bigint              NOT NULL DEFAULT 0,
    data           postroom.saga_data  NOT NULL,
    input          bytea               NOT NULL,
    correlation_id text                NOT NULL,
    causation_id   text,
    undo_id        text,
    owner          uuid                NOT NULL,
    waits_since    timestamptz         NOT NULL DEFAULT now(),
    waits_hour     timestamptz         NOT NULL DEFAULT date_bin('1 hour', now(), 'epoch'),
    deadline       timestamptz,
    alarm_at       timestamptz,
    note           text,
    started_at     timestamptz         NOT NULL DEFAULT now(),
    ended_at       timestamptz,
    PRIMARY KEY (name, key),
    -- In the years 1 to 9999, as JSON has it: one odd row must not take the list from operators.
    --guard:sagas-have-times-that-tools-can-print 1 true
    CONSTRAINT saga_times CHECK (least(waits_since, waits_hour, started_at, deadline, alarm_at, ended_at) >= '0001-01-01 00:00:00+00' AND greatest(waits_since, waits_hour, started_at, deadline, alarm_at, ended_at) < '10000-01-01 00:00:00+00')
) WITH (fillfactor = 70);
COMMENT ON TABLE postroom.saga IS
    'The instances of sagas. Each step changes the row of its instance, in the transaction that records the event that led to the step.';
COMMENT ON COLUMN postroom.saga.name IS
    'The name of the saga.';
COMMENT ON COLUMN postroom.saga.key IS
    'The thing that the instance is about, such as the number of an order. Its commands and replies have this key.';
COMMENT ON COLUMN postroom.saga.version IS
    'The version of the definition with which the instance began.';
COMMENT ON COLUMN postroom.saga.state IS
    'running: the instance does its steps. compensating: it undoes its steps in reverse order. done: it has ended after its last step. undone: it has ended after it undid its steps.';
COMMENT ON COLUMN postroom.saga.step IS
    'The name of the step that the instance waits for. If the instance has ended: the last step that it began to do or to undo.';
COMMENT ON COLUMN postroom.saga.run IS
    'The number of the command of this step: 1, and one more each time an operator has it sent again.';
COMMENT ON COLUMN postroom.saga.revision IS
    'Rises with each step. An operator''s decision names the revision that it was made for.';
COMMENT ON COLUMN postroom.saga.data IS
    'The data of the instance, as its program encodes it.';
COMMENT ON COLUMN postroom.saga.input IS
    'A digest of the input with which the instance began. If the instance is begun again with the same input, nothing changes.';
COMMENT ON COLUMN postroom.saga.correlation_id IS
    'The correlation id of all events of the instance.';
COMMENT ON COLUMN postroom.saga.causation_id IS
    'The id of the event that began the instance. NULL: a program began it.';
COMMENT ON COLUMN postroom.saga.undo_id IS
    'If another saga began the instance and then had it undone: the id of the other saga''s Undo, which the end of the instance answers. NULL: the end answers causation_id.';
COMMENT ON COLUMN postroom.saga.owner IS
    'The identity of the Postroom in which the instance began. The ids of its commands are derived from this identity, even in a copy of the database.';
COMMENT ON COLUMN postroom.saga.waits_since IS
    'Since when the instance has waited for this step.';
COMMENT ON COLUMN postroom.saga.waits_hour IS
    'An hour of UTC, for an index: no instance is stuck before this hour and the time stuck of its definition have passed. It is the hour of waits_since, or if there is a deadline, an earlier or later one.';
COMMENT ON COLUMN postroom.saga.deadline IS
    'When the instance gives up this step and begins to compensate. NULL: never.';
COMMENT ON COLUMN postroom.saga.alarm_at IS
    'When the next deadline event of the instance comes. The saga then checks whether deadline has passed. NULL: no such event is scheduled.';
COMMENT ON COLUMN postroom.saga.note IS
    'A text for people. It says why the last event that changed nothing did not count, or why a Local function gave up.';

-- The statement reads one row of the primary key for each saga, however many instances there are.
CREATE VIEW postroom.saga_known (name, stuck) AS
    WITH RECURSIVE begun (name) AS (
        (SELECT s.name FROM postroom.saga s ORDER BY s.name LIMIT 1)
        UNION ALL
        SELECT (SELECT s.name FROM postroom.saga s WHERE s.name > b.name ORDER BY s.name LIMIT 1) FROM begun b WHERE b.name IS NOT NULL
    )
    SELECT known.name, coalesce(max(d.stuck), '1 hour')
    FROM (SELECT b.name::text FROM begun b WHERE b.name IS NOT NULL
          UNION SELECT d.name FROM postroom.saga_definition d) AS known (name)
    LEFT JOIN postroom.saga_definition d ON d.name = known.name
    GROUP BY known.name;
COMMENT ON VIEW postroom.saga_known IS
    'The sagas that a process has run or that have an instance: a producer may begin instances before the first process runs the saga.';
COMMENT ON COLUMN postroom.saga_known.name IS
    'The name of the saga.';
COMMENT ON COLUMN postroom.saga_known.stuck IS
    'The longest time stuck of its definitions. An hour, if no process has run the saga.';

-- For list.sql of package saga.
CREATE INDEX saga_listed ON postroom.saga (name, state, started_at, key);

-- For list_stuck.sql of package saga, and stuck.sql and counts.sql in internal/sagas.
CREATE INDEX saga_waiting ON postroom.saga (name, waits_hour, key) WHERE ended_at IS NULL;

-- For unended.sql of package saga.
CREATE INDEX saga_version ON postroom.saga (name, version) WHERE ended_at IS NULL;

-- For expire.sql of package saga.
CREATE INDEX saga_ended ON postroom.saga (name, ended_at) WHERE ended_at IS NOT NULL;

CREATE TABLE postroom.saga_step (
    id         bigint                  GENERATED ALWAYS AS IDENTITY,
    name       postroom.saga_name      COLLATE "C" NOT NULL,
    key        postroom.saga_key       COLLATE "C" NOT NULL,
    revision   bigint                  NOT NULL,
    step       text                    NOT NULL,
    direction  postroom.saga_direction NOT NULL,
    what       text                    NOT NULL,
    type       text,
    event_id   text                    COLLATE "C",
    next_step  text,
    next_type  text,
    command_id text                    COLLATE "C",
    at         timestamptz             NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (name, key, id)
) WITH (fillfactor = 100);
COMMENT ON TABLE postroom.saga_step IS
    'The history of each instance: what happened, and the command that was written because of it. No row is changed. The rows are removed together with the row of saga.';
COMMENT ON COLUMN postroom.saga_step.name IS
    'The name of the saga.';
COMMENT ON COLUMN postroom.saga_step.key IS
    'The key of the instance.';
COMMENT ON COLUMN postroom.saga_step.revision IS
    'The revision of the instance after the change that the row records.';
COMMENT ON COLUMN postroom.saga_step.step IS
    'The name of the step that the row is about.';
COMMENT ON COLUMN postroom.saga_step.direction IS
    'do: the saga was doing the step. undo: the saga was undoing the step.';
COMMENT ON COLUMN postroom.saga_step.what IS
    'begun: the instance began. local: the Local function of the step ran. gave_up: that function gave up. done, failed, undone: this reply came. deadline: the step was not done before its deadline. retry, skip, mark_done, compensate: an operator decided this. sent: the row only records that a command was written.';
COMMENT ON COLUMN postroom.saga_step.next_step IS
    'The step of the command. NULL: no command was written.';
COMMENT ON COLUMN postroom.saga_step.next_type IS
    'The type of the command.';
COMMENT ON COLUMN postroom.saga_step.command_id IS
    'The id of the command. It ends with :do or :undo. If the command was sent again, .2 or a higher number follows.';

-- For step_of.sql in internal/sagas, which finds the saga of a command.
CREATE UNIQUE INDEX saga_step_command ON postroom.saga_step (command_id) WHERE command_id IS NOT NULL;

-- An operator's decision about an instance is an event for the saga's handler, and a row of audit.
-- This function writes both. It runs with the rights of the tables' owner, because an operator
-- cannot write events. The search path is set, so that no SQL operator of the caller runs with
-- these rights.
-- Every role that may write events can write one that looks like a decision. So a saga carries out
-- only a decision that has a row here, and only decide_saga writes rows.
CREATE TABLE postroom.saga_decision (
    name     postroom.saga_name COLLATE "C" NOT NULL,
    key      postroom.saga_key  COLLATE "C" NOT NULL,
    revision bigint             NOT NULL,
    event_id text               COLLATE "C" NOT NULL,
    digest   bytea              NOT NULL,
    actor    text               NOT NULL,
    action   text               NOT NULL,
    at       timestamptz        NOT NULL DEFAULT now(),
    PRIMARY KEY (name, key, revision)
);
COMMENT ON TABLE postroom.saga_decision IS
    'The decisions of operators about instances of sagas, one for each revision. Another decision may take its place.';
COMMENT ON COLUMN postroom.saga_decision.name IS
    'The name of the saga.';
COMMENT ON COLUMN postroom.saga_decision.key IS
    'The key of the instance.';
COMMENT ON COLUMN postroom.saga_decision.revision IS
    'The revision of the instance that the operator saw.';
COMMENT ON COLUMN postroom.saga_decision.event_id IS
    'The event that tells the saga, from the source /operator.';
COMMENT ON COLUMN postroom.saga_decision.digest IS
    'The SHA-256 of the data of this event.';
COMMENT ON COLUMN postroom.saga_decision.actor IS
    'The operator, as the audit has it.';
COMMENT ON COLUMN postroom.saga_decision.action IS
    'retry, skip, done or compensate.';
COMMENT ON COLUMN postroom.saga_decision.at IS
    'When the operator decided.';

CREATE FUNCTION postroom.decide_saga(name text, key text, revision bigint, action text, reply_type text, data jsonb, actor text, reason text, instead text)
RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    instance postroom.saga%ROWTYPE;
    decision jsonb;
    event    text;
    decided  text;
BEGIN
    IF $4 NOT IN ('retry', 'skip', 'done', 'compensate') THEN
        RAISE EXCEPTION 'no such action: %', $4 USING ERRCODE = 'invalid_parameter_value';
    END IF;
    -- This waits for a decision that the saga is carrying out. And it changes the row, so that a saga that
    -- began with an older snapshot fails and begins again.
    --guard:no-decision-passes-one-that-is-carried-out remove
    UPDATE postroom.saga s SET note = s.note WHERE s.name = $1 AND s.key = $2;
    SELECT s.* INTO instance FROM postroom.saga s
    WHERE s.name = $1 AND s.key = $2 AND s.revision = $3 AND s.ended_at IS NULL;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    decision := jsonb_strip_nulls(jsonb_build_object('saga', $1, 'key', $2, 'step', instance.step, 'revision', $3,
        'action', $4, 'type', nullif($5, '')));
    IF $6 IS NOT NULL THEN
        decision := decision || jsonb_build_object('data', $6);
    END IF;
    event := postroom.write('/operator', $1 || '.decision', decision, key => $2, correlation_id => instance.correlation_id,
        subject => (SELECT d.prefix || '.' || $1 || '.decision' FROM postroom.saga_definition d
                    WHERE d.name = $1 AND d.version = instance.version AND d.prefix <> ''),
        causation_id => (SELECT h.command_id FROM postroom.saga_step h
                         WHERE h.name = $1 AND h.key = $2 AND h.command_id IS NOT NULL ORDER BY h.id DESC LIMIT 1)); -- so that the events of an instance are one tree of causes and effects
    INSERT INTO postroom.saga_decision AS d (name, key, revision, event_id, digest, actor, action)
    VALUES ($1, $2, $3, event, sha256(convert_to(decision::text, 'UTF8')), $7, $4)
    ON CONFLICT ON CONSTRAINT saga_decision_pkey DO UPDATE
    SET event_id = excluded.event_id, digest = excluded.digest, actor = excluded.actor, action = excluded.action, at = excluded.at
    --guard:a-saga-is-decided-once-for-a-revision true
    WHERE d.event_id = $9;
    IF NOT FOUND THEN
        SELECT format('%s decided %s at %s, with event %s', d.actor, d.action, to_char(d.at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'), d.event_id)
        INTO decided FROM postroom.saga_decision d WHERE d.name = $1 AND d.key = $2 AND d.revision = $3;
        RAISE EXCEPTION 'another decision was made for this revision' USING ERRCODE = '23PR2', DETAIL = decided;
    END IF;
    INSERT INTO postroom.audit (actor, action, reason, events, handler, source, event_id, details)
    VALUES ($7, 'saga ' || $4, $8, 1, NULL, '/operator', event, decision - 'data');
    RETURN event;
END
$$;
COMMENT ON FUNCTION postroom.decide_saga IS
    'Writes an operator''s decision about an instance of a saga as an event, together with a row of audit, and returns the id of the event. If the instance does not exist, has ended, or has another revision, the function writes nothing and returns NULL. If there is another decision for the revision, it raises SQLSTATE 23PR2, except if instead is the event of that decision: then the saga refuses that one.';
REVOKE ALL ON FUNCTION postroom.decide_saga FROM PUBLIC; -- operators call it

--
-- A move by logical replication
--

-- Logical replication copies rows and not the sequences that number them. So after a move each of
-- these sequences begins again, and new rows collide with the old ones. A held event keeps its id in
-- archive. The relay never reads seqs up to high and floor again, even if the log has none of them.
-- saga_step is read completely.
CREATE FUNCTION postroom.raise_sequences()
RETURNS TABLE (name text, was bigint, is_now bigint)
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    FOR name, is_now IN
        SELECT s.name, s.most FROM (VALUES
            ('outbox_seq_seq', (SELECT greatest(max(o.seq), (SELECT greatest(r.high, r.floor) FROM postroom.relay r)) FROM postroom.outbox o)),
            ('relay_checkpoint_id_seq', (SELECT max(c.id) FROM postroom.relay_checkpoint c)),
            ('republish_id_seq', (SELECT max(r.id) FROM postroom.republish r)),
            ('held_id_seq', greatest((SELECT max(h.id) FROM postroom.held h), (SELECT max(a.id) FROM postroom.archive a))),
            ('audit_id_seq', (SELECT max(a.id) FROM postroom.audit a)),
            ('replay_id_seq', (SELECT max(j.id) FROM postroom.replay j)),
            ('dry_run_id_seq', (SELECT max(t.id) FROM postroom.dry_run t)),
            ('saga_step_id_seq', (SELECT max(h.id) FROM postroom.saga_step h))) AS s (name, most)
    LOOP
        EXECUTE format('SELECT last_value - (NOT is_called)::int FROM %s.%I', 'postroom'::regnamespace, name) INTO was;
        --guard:sequences-are-raised false
        IF is_now > was THEN
            PERFORM setval(format('%s.%I', 'postroom'::regnamespace, name)::regclass, is_now);
            RETURN NEXT;
        END IF;
    END LOOP;
END
$$;
REVOKE ALL ON FUNCTION postroom.raise_sequences FROM PUBLIC; -- the owner calls it
COMMENT ON FUNCTION postroom.raise_sequences() IS
    'Raises each sequence of the schema that is behind the rows which it numbers, and returns which it raised. Call the function as the owner of the tables, after a move by logical replication, before any program runs.';

--
-- Rights
--

CREATE FUNCTION postroom.grant_sagas(role regrole)
RETURNS void
LANGUAGE sql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT postroom.grant_all(ARRAY[
        pg_catalog.format('USAGE ON SCHEMA %s', 'postroom'::regnamespace),
        'SELECT ON postroom.migration, postroom.instance, postroom.dedupe_window, postroom.node',
        'SELECT, INSERT, UPDATE ON postroom.saga_definition',
        'SELECT ON postroom.saga_known',
        'SELECT, INSERT, UPDATE, DELETE ON postroom.saga, postroom.saga_step',
        'SELECT, DELETE ON postroom.saga_decision'
    ], role)
$$;
REVOKE ALL ON FUNCTION postroom.grant_sagas FROM PUBLIC; -- the owner calls it
COMMENT ON FUNCTION postroom.grant_sagas(regrole) IS
    'Grants a role the rights to begin and run sagas. The role also needs grant_producer and grant_inbox. Call the function as the owner of the tables. migrate up and schema.Migrate repeat the grant; after a migration with another tool, call the function again.';
