-- The seqs above $1 that are held. After a crash the relay reads the log again from the
-- recorded high on. It leaves these events out, because they are held already.
--
-- Locks   none.
-- Index   held_outgoing (pos).
-- Called  by Term.Read, the first time.
SELECT pos FROM postroom.held WHERE handler = 'outbox' AND pos > $1;
