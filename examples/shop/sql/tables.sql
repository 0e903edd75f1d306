-- The tables of the example: the tables of a shop, of a billing service and of an analytics
-- service, and the evidence that the proof reads.
--
-- On purpose, no constraint refuses a second charge for an order, and the totals add up all amounts
-- that come. A constraint would hide a fault of the delivery.
--
-- Called  by open.

-- Committed orders. The proof compares everything else with these rows.
CREATE TABLE shop_order (
    id       text    PRIMARY KEY,
    customer int     NOT NULL,
    amount   bigint  NOT NULL CHECK (amount > 0),    -- cents
    held     boolean NOT NULL                        -- its transaction stayed open on purpose
);

-- The charges of billing. On purpose, order_id is not unique.
CREATE TABLE charge (
    id         bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    order_id   text        NOT NULL,
    amount     bigint      NOT NULL,
    charged_at timestamptz NOT NULL DEFAULT clock_timestamp() -- time of the insert, not the commit
);

-- The totals of analytics. Each customer has a row, so that handlers seldom wait for each other.
-- fillfactor leaves room in each page, so that updates need no new page.
CREATE TABLE customer_total (
    customer int    PRIMARY KEY,
    orders   bigint NOT NULL,
    amount   bigint NOT NULL
) WITH (fillfactor = 50);

-- Evidence: the orders that the clients rolled back, from the records of the clients. The program
-- writes them after the run, because the transactions left no rows.
CREATE TABLE rolled_back (
    order_id text PRIMARY KEY,
    customer int  NOT NULL
);

-- Evidence: every message of the stream. The program reads them after the run.
CREATE TABLE stream_message (
    seq      bigint  PRIMARY KEY,
    event_id text    NOT NULL,
    type     text    NOT NULL,
    key      text    NOT NULL,
    copied   boolean NOT NULL -- one of the copies that the example sends on purpose
);
