-- Fail with 22P02 if the transaction is not the one with id $1. A handler may have ended the
-- transaction with its own statement and begun another transaction. pgx cannot distinguish the two.
-- To fail, the statement casts a text to int. The server's log shows the text.
--
-- Locks   none.
-- Index   none.
-- Called  by Tx.commit, before COMMIT and in the same round trip, and by Tx.isStill.
SELECT CASE WHEN pg_current_xact_id_if_assigned()::text = $1::text THEN 0
            ELSE ('a handler ended transaction ' || $1::text || ' with a statement of its own; now it is '
                  || coalesce(pg_current_xact_id_if_assigned()::text, 'another'))::int END;
