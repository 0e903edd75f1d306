-- The tables of the example: what a shop, a billing service and an analytics
-- service would each keep, and the evidence that the proof reads.
--
-- Nothing here hides a fault of the delivery. No constraint would refuse a
-- second charge for an order, and the totals add up all amounts that come.
--
-- Called  by open.

-- Committed orders. The proof compares everything else with these rows.
CREATE TABLE shop_order (
    id       text    PRIMARY KEY,
    customer int     NOT NULL,
    amount   bigint  NOT NULL CHECK (amount > 0),    -- cents
    held     boolean NOT NULL                        -- its transaction stayed open on purpose
);

-- The charges of billing. order_id is not unique, on purpose.
CREATE TABLE charge (
    id         bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    order_id   text        NOT NULL,
    amount     bigint      NOT NULL,
    charged_at timestamptz NOT NULL DEFAULT clock_timestamp() -- the insert, not the commit
);

-- The totals of analytics. A row for each customer, so that handlers seldom wait
-- for one another; fillfactor leaves room to update in place.
CREATE TABLE customer_total (
    customer int    PRIMARY KEY,
    orders   bigint NOT NULL,
    amount   bigint NOT NULL
) WITH (fillfactor = 50);

-- Evidence: orders that were rolled back, as their clients remember them. It is
-- written after the run, because the transactions themselves left nothing.
CREATE TABLE rolled_back (
    order_id text PRIMARY KEY,
    customer int  NOT NULL
);

-- Evidence: every message of the stream, read after the run.
CREATE TABLE stream_message (
    seq      bigint  PRIMARY KEY,
    event_id text    NOT NULL,
    type     text    NOT NULL,
    key      text    NOT NULL,
    copied   boolean NOT NULL -- one of the copies that the example sends on purpose
);
