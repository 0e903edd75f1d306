-- The tables of the payment service. On purpose, no constraint refuses a second charge for an
-- order: a constraint would hide a fault of the delivery.
--
-- Called  by open, in its database.

-- What each customer can spend.
CREATE TABLE account (
    customer int    PRIMARY KEY,
    before   bigint NOT NULL, -- the credit when the run began
    credit   bigint NOT NULL
);

-- Every movement of money.
CREATE TABLE movement (
    id       bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    order_id text        NOT NULL,
    customer int         NOT NULL,
    kind     text        NOT NULL CHECK (kind IN ('charge', 'refund')),
    amount   bigint      NOT NULL CHECK (amount > 0),
    at       timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX ON movement (order_id);
