-- Keep the leading relay from recording until the transaction ends, if any of the events $1 is
-- an outgoing event: the relay writes the outgoing rows of held after its own row. For other
-- events the relay need not wait.
--
-- Locks   the one row of relay.
-- Index   held_pkey (id), archive_pkey (id).
-- Called  by Tables.Lock, before statements that change outgoing rows.
SELECT epoch FROM postroom.relay
WHERE EXISTS (SELECT FROM postroom.held WHERE id = ANY ($1::bigint[]) AND handler = 'outbox')
   OR EXISTS (SELECT FROM postroom.archive WHERE id = ANY ($1::bigint[]) AND handler = 'outbox')
FOR UPDATE;
