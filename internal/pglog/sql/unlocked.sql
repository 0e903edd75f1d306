-- The events of $1 (seqs) that no open transaction cancels, or gives another time. It takes the
-- lock of each event and gives it back at once: a transaction that takes the lock later finds that
-- the event is due, and leaves it to the relay.
--
-- Locks   the events, by advisory locks, for a moment.
-- Index   none.
-- Called  by Term.Read, behind a read of events that are due; still_due.sql follows in the same round trip.
SELECT seq
FROM unnest($1::bigint[]) AS e (seq)
WHERE CASE WHEN pg_try_advisory_lock_shared(postroom.event_lock(seq)) THEN pg_advisory_unlock_shared(postroom.event_lock(seq)) ELSE false END;
