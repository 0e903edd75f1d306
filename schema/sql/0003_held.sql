-- Events that could not go straight through. So far: those scheduled for later.

-- A row is owed. It holds its own copy of the event, so that it does not depend
-- on what becomes of the log.
CREATE TABLE postroom.held (
    id             bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    handler        text        NOT NULL CHECK (octet_length(handler) BETWEEN 1 AND 128),
    pos            bigint      NOT NULL,
    next_at        timestamptz NOT NULL CHECK (isfinite(next_at)),
    held_at        timestamptz NOT NULL DEFAULT now(),

    -- The event, as it stands in the log.
    logged_at      timestamptz NOT NULL,
    source         text        NOT NULL,
    event_id       text        NOT NULL,
    type           text        NOT NULL,
    subject        text        NOT NULL,
    event_key      text,
    content_type   text        NOT NULL,
    correlation_id text,
    causation_id   text,
    occurred_at    timestamptz,
    trace_parent   text,
    trace_state    text,
    headers        jsonb,
    data           bytea       NOT NULL
);

-- An event of the log is held once, on its way out.
CREATE UNIQUE INDEX held_outgoing ON postroom.held (pos) WHERE handler = 'outbox';

-- Serves the due rows of internal/pglog/sql/pass.sql.
CREATE INDEX held_due ON postroom.held (next_at) WHERE handler = 'outbox';

COMMENT ON TABLE postroom.held IS
    'Events that could not go straight through, and are owed until their row is gone.';
COMMENT ON COLUMN postroom.held.handler IS
    'Who owes the event. The reserved name outbox: the relay, on the way to the broker.';
COMMENT ON COLUMN postroom.held.pos IS
    'Orders the events of a key; for outgoing ones, their seq in the log.';
COMMENT ON COLUMN postroom.held.next_at IS
    'When the event is due, by this database''s clock.';
COMMENT ON COLUMN postroom.held.logged_at IS
    'The later of when it was written and when it was to be published; travels as postroom-logged-at.';
