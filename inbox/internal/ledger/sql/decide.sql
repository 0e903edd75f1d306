-- Decide the event with dedupe key $2 and digest $3 for handler $1, and return the id of the
-- transaction. No row means that the event is decided already. The statement also sets timeouts. If
-- the handler waits five seconds for a lock, it gets an error. If it leaves its transaction idle
-- for $4 milliseconds, the server closes the connection.
--
-- Locks   the new row; waits for a transaction that is deciding the same event,
--         and then inserts if that transaction rolled back.
-- Index   inbox's primary key.
-- Called  by Handler.Decision, after BEGIN, in the same round trip.
INSERT INTO postroom.inbox (handler, dedupe_key, digest)
SELECT $1::text, $2::text, $3::bytea
--guard:no-timeout-hides-an-event = @1.1 <> @1.2
WHERE set_config('lock_timeout', '5s', true) || set_config('idle_in_transaction_session_timeout', $4::text, true) <> '' -- this is always true
ON CONFLICT (handler, dedupe_key) DO NOTHING
RETURNING pg_current_xact_id()::text;
