-- Decide the event with dedupe key $2 and digest $3 for ordered handler $1, if the reader with
-- epoch $6 still reads. The caller uses this statement if that reader knows of no held event of the
-- event's key $5. This is safe even if the previous reader has just held an earlier event of the
-- key: this reader reads that earlier event first, finds that it is decided, and so uses
-- decide_ordered.sql for the next event of the key. No row means that event $2 is decided already,
-- or that the term with epoch $6 is over. As in keep.sql, it is also over if the server was
-- restarted or replaced. Timeouts and result are as in decide.sql.
--
-- Locks   the key, until the transaction ends; the new row. Waits for a transaction
--         that is deciding the same event.
-- Index   the primary keys of inbox and subscription.
-- Called  by Handler.Decision, after BEGIN, in the same round trip.
INSERT INTO postroom.inbox (handler, dedupe_key, digest)
SELECT $1::text, $2::text, $3::bytea
--guard:a-key-is-waited-for-with-a-limit 1 = (@1) AND (@2)
WHERE CASE WHEN set_config('lock_timeout', '5s', true) || set_config('idle_in_transaction_session_timeout', $4::text, true) <> ''
           THEN pg_advisory_xact_lock(postroom.key_lock($1, $5::text)) IS NOT NULL END -- CASE: the timeout is set before the wait
  AND EXISTS (SELECT FROM postroom.subscription
              --guard:a-term-decides-nothing-on-another-server 3 true
              WHERE handler = $1 AND epoch = $6::bigint AND floor_server = pg_postmaster_start_time())
ON CONFLICT (handler, dedupe_key) DO NOTHING
RETURNING pg_current_xact_id()::text;
