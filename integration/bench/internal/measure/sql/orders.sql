-- Create the table orders. The producers' transactions insert a row into it, in addition to their
-- events. Also create the outbox that a service without Postroom would have. It has only the
-- columns that every outbox needs.
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
