-- The tables of the stock service. On purpose, no constraint refuses a second reservation for an
-- order or a negative number of goods: a constraint would hide a fault of the delivery.
--
-- Called  by its tests.
CREATE TABLE item (
    sku       text    PRIMARY KEY,
    supplied  boolean NOT NULL, -- whether the service has to ask a supplier for it
    before    bigint  NOT NULL, -- the value of available when the run began
    available bigint  NOT NULL,
    lowest    bigint  NOT NULL  -- the lowest value that available ever had
);

-- Every reservation, and every release. A release has a negative quantity.
CREATE TABLE movement (
    id       bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    order_id text        NOT NULL,
    sku      text        NOT NULL,
    quantity bigint      NOT NULL,
    at       timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX ON movement (order_id);

CREATE TABLE supplier_request (
    order_id text        NOT NULL,
    sku      text        NOT NULL,
    quantity bigint      NOT NULL,
    at       timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- Orders that this service knows. For a closed order, the service does nothing.
CREATE TABLE seen (
    order_id text    PRIMARY KEY,
    closed   boolean NOT NULL DEFAULT false
);
