-- Create the table to which the handlers of an inbox write. The figures are about the inbox, so the
-- table has no index that would add work.
--
-- Locks   none; it is new.
-- Called  by ledger.
CREATE TABLE postroom.effects (
    order_key text   NOT NULL,
    amount    bigint NOT NULL
);
