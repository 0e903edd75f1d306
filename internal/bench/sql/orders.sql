-- What the transactions of the producers change beside their events.
--
-- Locks   none; it is new.
-- Called  by bench.createLog.
CREATE TABLE postroom.orders (
    id        bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    customer  text        NOT NULL,
    amount    bigint      NOT NULL,
    placed_at timestamptz NOT NULL DEFAULT now()
);
