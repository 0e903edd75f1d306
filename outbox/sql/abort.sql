-- Fail, so that the transaction cannot commit.
--
-- Locks   none.
-- Index   none.
-- Called  by Outbox.Write and Outbox.WriteSQL, if they did not reach the server with an event.
DO $$ BEGIN
    RAISE EXCEPTION 'an event of this transaction was not written, so the transaction must not commit' USING ERRCODE = 'query_canceled';
END $$
