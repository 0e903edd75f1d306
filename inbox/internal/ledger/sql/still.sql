-- Fail with 22P02 if the transaction is not the one with id $1. A handler may have ended the
-- transaction with its own statement and begun another transaction. pgx cannot distinguish the two.
-- If the statement fails, the server's log shows a text that is not a number.
--
-- Locks   none.
-- Index   none.
-- Called  by Tx.commit, before COMMIT and in the same round trip, and by Tx.isStill.
SELECT CASE WHEN pg_current_xact_id_if_assigned()::text = $1::text THEN 0
            ELSE ('a handler ended transaction ' || $1::text || ' with a statement of its own; now it is '
                  || coalesce(pg_current_xact_id_if_assigned()::text, 'another'))::int END;
