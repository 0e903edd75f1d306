-- The tables of the auditor: copies of the services' tables, in the auditor's own database, so
-- that one statement can compare them. The services do not know the auditor.
--
-- Called  by open.
CREATE TABLE placed (
    id        text        PRIMARY KEY,
    customer  int         NOT NULL,
    sku       text        NOT NULL,
    quantity  bigint      NOT NULL,
    amount    bigint      NOT NULL,
    state     text        NOT NULL,
    reason    text        NOT NULL,
    placed_at timestamptz NOT NULL,
    ended_at  timestamptz
);
CREATE TABLE process (order_id text PRIMARY KEY, state text NOT NULL); -- postroom.saga
CREATE TABLE account (customer int PRIMARY KEY, before bigint NOT NULL, credit bigint NOT NULL);
CREATE TABLE money   (order_id text NOT NULL, customer int NOT NULL, kind text NOT NULL, amount bigint NOT NULL, at timestamptz NOT NULL);
CREATE TABLE item    (sku text PRIMARY KEY, supplied boolean NOT NULL, before bigint NOT NULL, available bigint NOT NULL, lowest bigint NOT NULL);
CREATE TABLE goods   (order_id text NOT NULL, sku text NOT NULL, quantity bigint NOT NULL, at timestamptz NOT NULL);
CREATE TABLE asked   (order_id text NOT NULL, at timestamptz NOT NULL);

-- postroom.outbox of each service: its events.
CREATE TABLE event (
    service        text        NOT NULL,
    event_id       text        NOT NULL,
    type           text        NOT NULL,
    key            text,
    correlation_id text,
    causation_id   text,
    at             timestamptz NOT NULL
);

-- postroom.inbox of each service: the events that its handlers have decided.
CREATE TABLE decided (
    service    text        NOT NULL,
    handler    text        NOT NULL,
    dedupe_key text        NOT NULL,
    at         timestamptz NOT NULL
);

-- postroom.held of each service: the events that still have to run, and the dead ones.
CREATE TABLE held (
    service  text    NOT NULL,
    handler  text    NOT NULL,
    event_id text    NOT NULL,
    dead     boolean NOT NULL
);

-- The messages of the streams, and the types that each handler reads.
CREATE TABLE message    (event_id text NOT NULL, type text NOT NULL);
CREATE TABLE subscribed (handler text NOT NULL, type text NOT NULL);
