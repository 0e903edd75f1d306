-- The tables of the stock service. No constraint would refuse a second reservation
-- for an order, nor a negative number of goods, on purpose: nothing here hides a fault of the
-- delivery.
--
-- Called  by its tests.
CREATE TABLE item (
    sku       text    PRIMARY KEY,
    supplied  boolean NOT NULL, -- by a supplier, who has to be asked
    before    bigint  NOT NULL, -- when the run began
    available bigint  NOT NULL,
    lowest    bigint  NOT NULL  -- the lowest value that available ever had
);

-- Every reservation, and with a negative number every release.
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

-- Orders that this service knows. For a closed order it does nothing.
CREATE TABLE seen (
    order_id text    PRIMARY KEY,
    closed   boolean NOT NULL DEFAULT false
);
