-- Create the table to which the handlers of an inbox write. It has no index, because the figures
-- are about the inbox.
--
-- Locks   none; it is new.
-- Called  by bench.ledger.
CREATE TABLE postroom.effects (
    order_key text   NOT NULL,
    amount    bigint NOT NULL
);
