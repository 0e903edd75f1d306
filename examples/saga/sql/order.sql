-- The tables of the order service.
--
-- Called  by open, in its database.
CREATE TABLE orders (
    id        text        PRIMARY KEY,
    customer  int         NOT NULL,
    sku       text        NOT NULL,
    quantity  bigint      NOT NULL,
    amount    bigint      NOT NULL,                  -- cents
    state     text        NOT NULL DEFAULT 'pending' -- then confirmed or cancelled
        CHECK (state IN ('pending', 'confirmed', 'cancelled')),
    reason    text        NOT NULL DEFAULT '',
    placed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    ended_at  timestamptz
);
