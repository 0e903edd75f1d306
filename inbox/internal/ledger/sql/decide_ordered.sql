-- Decide the event with dedupe key $2 and digest $3 for ordered handler $1, if no event of its key
-- $5 is held. The event's place in the key is $6, and it was read in epoch $7. No row means that
-- the event is decided already or has to wait, or that the term with epoch $7 is over. Timeouts and
-- result are as in decide.sql.
--
-- Locks   the key, until the transaction ends; the new row. Waits for a transaction
--         that is deciding the same event.
-- Index   held_chain_pos (handler, chain, pos), the primary keys of inbox and subscription.
-- Called  by Handler.Decision, after BEGIN, in the same round trip.
INSERT INTO postroom.inbox (handler, dedupe_key, digest)
SELECT $1::text, $2::text, $3::bytea
WHERE set_config('lock_timeout', '5s', true) || set_config('idle_in_transaction_session_timeout', $4::text, true) <> ''
  AND postroom.enter_key($1, $5::text, $6::bigint, $7::bigint) = 'free'
ON CONFLICT (handler, dedupe_key) DO NOTHING
RETURNING pg_current_xact_id()::text;
