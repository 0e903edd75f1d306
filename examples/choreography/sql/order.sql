-- The tables of the order service.
--
-- Called  by its tests.
CREATE TABLE orders (
    id        text        PRIMARY KEY,
    customer  int         NOT NULL,
    sku       text        NOT NULL,
    quantity  bigint      NOT NULL,
    amount    bigint      NOT NULL,                  -- cents
    state     text        NOT NULL DEFAULT 'pending' -- then confirmed, or (expired and) cancelled
        CHECK (state IN ('pending', 'expired', 'confirmed', 'cancelled')),
    reason    text        NOT NULL DEFAULT '',
    placed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    deadline  timestamptz NOT NULL,
    ended_at  timestamptz
);
