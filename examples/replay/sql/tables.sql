-- The tables of the example. On purpose, no constraint refuses a second charge for an order, or a
-- second letter of thanks: a constraint would hide a fault.
--
-- Called  by open.

CREATE TABLE shop_order (
    id       text PRIMARY KEY,
    currency text NOT NULL,
    amount   text NOT NULL -- as the customer wrote it
);

CREATE TABLE rate (
    currency text   PRIMARY KEY,
    percent  int    NOT NULL -- hundredths of a dollar for one unit of the currency
);
INSERT INTO rate VALUES ('USD', 100); -- no rate for EUR: this is the fault of the example

CREATE TABLE charge (
    id       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    order_id text   NOT NULL,
    cents    bigint NOT NULL
);

CREATE TABLE thanks (
    id       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    order_id text   NOT NULL
);
