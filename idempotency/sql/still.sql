-- Fail with 22P02 if the transaction is not the one that began at $1. A handler may have
-- ended the transaction with its own statement and begun another; to pgx both look the same.
-- The statement compares the time and not the transaction id, because most repeated requests
-- have no transaction id. The server's log then shows a text that is not a number.
--
-- Locks   none.
-- Index   none.
-- Called  by tx.finish, before COMMIT and in the same round trip, if store.sql does not check it, and by Phase.
SELECT CASE WHEN now() = $1::timestamptz THEN 0
            ELSE ('a handler ended its transaction with a statement of its own; this one began at ' || now()::text)::int END;
