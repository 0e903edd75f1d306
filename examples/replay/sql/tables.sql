-- The tables of the example. Nothing here hides a fault: no constraint would refuse a
-- second charge for an order, or a second letter of thanks.
--
-- Called  by open.

CREATE TABLE shop_order (
    id       text PRIMARY KEY,
    currency text NOT NULL,
    amount   text NOT NULL -- as the client wrote it
);

CREATE TABLE rate (
    currency text   PRIMARY KEY,
    percent  int    NOT NULL -- of a dollar
);
INSERT INTO rate VALUES ('USD', 100); -- and none for EUR, which is what goes wrong

CREATE TABLE charge (
    id       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    order_id text   NOT NULL,
    cents    bigint NOT NULL
);

CREATE TABLE thanks (
    id       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    order_id text   NOT NULL
);
