-- The events of $1 (seqs) that no open transaction is cancelling or rescheduling: the statement can
-- take their locks (postroom.event_lock). It releases each lock at once. A transaction that takes
-- the lock later finds that the event is due, and leaves the event to the relay.
--
-- Locks   the events, by advisory locks, for a moment.
-- Index   none.
-- Called  by Term.Read, after a read of due events; still_due.sql follows in the same round trip.
SELECT seq
FROM unnest($1::bigint[]) AS e (seq)
--guard:due-events-that-are-being-cancelled true
WHERE CASE WHEN pg_try_advisory_lock_shared(postroom.event_lock(seq)) THEN pg_advisory_unlock_shared(postroom.event_lock(seq)) ELSE false END;
