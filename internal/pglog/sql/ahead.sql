-- The seqs above $1 that are held. After a crash the log is read again from the
-- recorded high on, and these are not to be taken from it.
--
-- Locks   none.
-- Index   held_outgoing (pos).
-- Called  by Term.Read, the first time.
SELECT pos FROM postroom.held WHERE handler = 'outbox' AND pos > $1;
