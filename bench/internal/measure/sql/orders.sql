-- What the transactions of the producers change beside their events, and a table of
-- events as a service would make it by hand: with what no outbox can do without.
--
-- Locks   none; they are new.
-- Called  by servers.createLog.
CREATE TABLE postroom.orders (
    id        bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    customer  text        NOT NULL,
    amount    bigint      NOT NULL,
    placed_at timestamptz NOT NULL DEFAULT now()
);
CREATE TABLE postroom.outbox_by_hand (
    id         bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    event_id   text        NOT NULL,
    type       text        NOT NULL,
    key        text,
    created_at timestamptz NOT NULL DEFAULT now(),
    data       bytea       NOT NULL
);
