-- The log's sequence: the last seq it handed out, the last it must not hand out, and its
-- options. And whether the log was restored into another cluster, and not adopted yet.
--
-- The lowest seq that it can still hand out has to be above high, or new events
-- would be taken for published ones. CACHE or INCREMENT other than 1 would take
-- the order within a key from it, CYCLE everything.
--
-- Locks   none.
-- Index   none; one row of each.
-- Called  by Log.Check and Log.Lead.
SELECT s.last_value - (NOT s.is_called)::int AS last, greatest(r.high, r.floor) AS high, q.seqincrement AS increment, q.seqcache AS cache, q.seqcycle AS cycle,
    r.cluster <> (SELECT system_identifier FROM pg_control_system()) AS restored
FROM postroom.relay r,
     postroom.outbox_seq_seq s,
     pg_sequence q
WHERE q.seqrelid = 'postroom.outbox_seq_seq'::regclass;
