-- The log's sequence: the last seq it handed out, the last it must not hand out, and its
-- options. outbox/sql/sequence.sql says why.
--
-- Locks   none.
-- Index   none; one row of each.
-- Called  by checkSequence.
SELECT s.last_value - (NOT s.is_called)::int AS last, greatest(r.high, r.floor) AS high, q.seqincrement AS increment, q.seqcache AS cache, q.seqcycle AS cycle
FROM postroom.relay r,
     postroom.outbox_seq_seq s,
     pg_sequence q
WHERE q.seqrelid = 'postroom.outbox_seq_seq'::regclass;
