-- What a broker had, by which the relay notices that it forgot some of it; and what
-- is published again by an operator's wish.
--
-- Additive: relays of version 10 go on, and notice nothing. A relay of this version
-- that follows one of them finds the places that the last of its kind recorded, which
-- are behind: it compares a little more.

-- It is in the row that says what is published, because it has to be as old.
ALTER TABLE postroom.relay ADD COLUMN streams jsonb NOT NULL DEFAULT '{}';
COMMENT ON COLUMN postroom.relay.streams IS
    'By name, the last message of each stream that was acknowledged: when the stream was created, its sequence, its message id.';

-- The row relay as it was from time to time. What a stream lost from some message on
-- was not published, or not recorded, when the stream was known up to that message.
CREATE TABLE postroom.relay_mark (
    id      bigint         GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at      timestamptz    NOT NULL DEFAULT clock_timestamp(),
    streams jsonb          NOT NULL,
    high    bigint         NOT NULL,
    floor   bigint         NOT NULL,
    snap    pg_snapshot    NOT NULL,
    pending int8multirange NOT NULL,
    settled int8multirange NOT NULL DEFAULT '{}'
);
COMMENT ON TABLE postroom.relay_mark IS
    'What the relay had published from time to time, of the last hour: finds what a stream may have lost.';
COMMENT ON COLUMN postroom.relay_mark.settled IS
    'Events that were published from held after this mark and before the next.';

-- Events that are published again beside the live ones: a range of the log, or what a
-- comparison found missing.
CREATE TABLE postroom.rewind (
    id         bigint         GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    created_at timestamptz    NOT NULL DEFAULT now(),
    actor      text           NOT NULL CHECK (octet_length(actor) BETWEEN 1 AND 255),
    reason     text           NOT NULL DEFAULT '' CHECK (octet_length(reason) <= 4096),
    kind       text           NOT NULL CHECK (kind IN ('rewind', 'reconcile')),

    since      timestamptz,
    until      timestamptz,
    types      text[],
    keys       text[],
    lo         bigint         NOT NULL,
    hi         bigint         NOT NULL,
    seqs       int8multirange,
    events     bigint         NOT NULL CHECK (events >= 0),
    rate       float8         NOT NULL CHECK (rate > 0),
    wish       text           NOT NULL CHECK (octet_length(wish) BETWEEN 1 AND 64),

    state      text           NOT NULL DEFAULT 'running' CHECK (state IN ('running', 'done', 'cancelled')),
    passed     bigint         NOT NULL,
    owed       int8multirange NOT NULL DEFAULT '{}',
    published  bigint         NOT NULL DEFAULT 0,
    skipped    bigint         NOT NULL DEFAULT 0,
    held       bigint         NOT NULL DEFAULT 0,
    ended_at   timestamptz,
    CHECK ((state = 'running') = (ended_at IS NULL))
);
CREATE INDEX rewind_running ON postroom.rewind (id) WHERE state = 'running';
CREATE UNIQUE INDEX rewind_wish ON postroom.rewind (wish) WHERE state = 'running';
COMMENT ON TABLE postroom.rewind IS
    'What operators had published again. The relay takes one after the other; each has message ids of its own.';
COMMENT ON COLUMN postroom.rewind.seqs IS
    'Of lo through hi, these alone. NULL: all that match.';
COMMENT ON COLUMN postroom.rewind.events IS
    'How many there were when it was asked for.';
COMMENT ON COLUMN postroom.rewind.rate IS
    'Events a second, at the most.';
COMMENT ON COLUMN postroom.rewind.wish IS
    'A digest of what was asked for. While a rewind runs, the same wish is that rewind.';
COMMENT ON COLUMN postroom.rewind.passed IS
    'Its events up to this seq are published, skipped or held, but for those in owed.';
COMMENT ON COLUMN postroom.rewind.owed IS
    'Events up to passed that were sent and are not acknowledged.';
COMMENT ON COLUMN postroom.rewind.skipped IS
    'Events that were in held or its archive, or not published for the first time, when their turn came.';
COMMENT ON COLUMN postroom.rewind.held IS
    'Events that the broker refused. They are in held, or were.';

-- A rewound event that the broker refuses is held, as others are; it goes on being a
-- repetition.
ALTER TABLE postroom.held ADD COLUMN rewind bigint;
ALTER TABLE postroom.archive ADD COLUMN rewind bigint;
COMMENT ON COLUMN postroom.held.rewind IS
    'The rewind that an outgoing event is a repetition for: it is published with that mark, and holds up no key.';
