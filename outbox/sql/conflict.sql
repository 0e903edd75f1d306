-- Abort the transaction: an event in it has the source and id of another one.
-- The savepoint around the write, where there is one, can still be rolled back.
--
-- Locks   none.
-- Index   none.
-- Called  by Outbox.Write, after write.sql or digest.sql found a conflict.
DO $$
BEGIN
    RAISE EXCEPTION 'another event with this source and id exists'
        USING ERRCODE = 'unique_violation', CONSTRAINT = 'outbox_event';
END $$;
