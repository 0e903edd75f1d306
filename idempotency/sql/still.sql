-- Fail with 22P02 if the transaction is not the one that began at $1. A handler that ended
-- the transaction with a statement of its own, and began another, has the status of one
-- that did not. The time and not the id: most requests that are answered again have none.
-- The text that is no number is what the server's log shows.
--
-- Locks   none.
-- Index   none.
-- Called  by tx.finish, before COMMIT and in the same round trip, where store.sql does not do it first, and by Phase.
SELECT CASE WHEN now() = $1::timestamptz THEN 0
            ELSE ('a handler ended its transaction with a statement of its own; this one began at ' || now()::text)::int END;
