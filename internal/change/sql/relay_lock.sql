-- If any of the events $1 is outgoing, lock the row of relay until the transaction ends. The
-- leading relay writes this row before it writes the outgoing rows of held, so the relay waits. If
-- none of the events is outgoing, the relay need not wait, and the statement locks nothing.
--
-- Locks   the one row of relay.
-- Index   held_pkey (id), archive_pkey (id).
-- Called  by Tables.Lock and Tables.LockRelay, before statements that change outgoing rows.
SELECT epoch FROM postroom.relay
WHERE EXISTS (SELECT FROM postroom.held WHERE id = ANY ($1::bigint[]) AND handler = 'outbox')
   OR EXISTS (SELECT FROM postroom.archive WHERE id = ANY ($1::bigint[]) AND handler = 'outbox')
FOR UPDATE;
