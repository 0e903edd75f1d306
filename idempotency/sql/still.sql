-- Fail with 22P02 if the transaction is not the one that began at $1. A handler may have ended the
-- transaction with its own statement and begun another, and pgx cannot distinguish the two. The
-- statement compares times and not transaction ids: a transaction has an id only after it writes,
-- and the transactions of most repeated requests write nothing. The statement fails because the
-- text in the CASE is not a number. The server's log shows this text.
--
-- Locks   none.
-- Index   none.
-- Called  by Phase, and by tx.finish before COMMIT in the same round trip, if there is no key or only the answer is kept.
SELECT CASE WHEN now() = $1::timestamptz THEN 0
            ELSE ('a handler ended its transaction with a statement of its own; this one began at ' || now()::text)::int END;
