-- The sequence of the log: the last seq that it gave out, the last seq that it must not give out
-- again, and its options. internal/pglog/sql/sequence.sql says why these matter.
--
-- Locks   none.
-- Index   none; one row of each.
-- Called  by checkSequence.
SELECT s.last_value - (NOT s.is_called)::int AS last, greatest(r.high, r.floor) AS high, q.seqincrement AS increment, q.seqcache AS cache, q.seqcycle AS cycle
FROM postroom.relay r,
     postroom.outbox_seq_seq s,
     pg_sequence q
WHERE q.seqrelid = 'postroom.outbox_seq_seq'::regclass::oid;
