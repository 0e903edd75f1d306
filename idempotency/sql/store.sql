-- Store the answer of attempt $5 for key $3 of principal $2 in scope $1. The answer expires $11
-- after it is stored. If $12 is set, the answer expires $11 after the transaction began, but at the
-- earliest half of $11 after it is stored. If the key has a row already, the statement fails, so
-- that the server does not execute the COMMIT after it in the same round trip. The statement also
-- fails, with 22P02 as in still.sql, if the transaction is not the one that began at $13.
--
-- Locks   the new row; waits for a transaction that inserts the same key.
-- Index   the primary key.
-- Called  by tx.finish, with a COMMIT after it.
INSERT INTO postroom.idempotency (scope, principal, key, fingerprint, state, attempts, status, headers, body, ref, dropped,
                                  created_at, completed_at, expires_at)
VALUES ($1, $2, $3, $4, 'complete',
        --guard:the-row-is-of-the-transaction 1 true
        CASE WHEN now() = $13::timestamptz THEN $5::int
             ELSE ('a handler ended its transaction with a statement of its own; this one began at ' || now()::text)::int END, $6, $7, $8, $9, $10,
        now(), clock_timestamp(),
        greatest(CASE WHEN $12::boolean THEN now() ELSE clock_timestamp() END + $11::interval, clock_timestamp() + $11::interval / 2::float8));
