-- The log's sequence: the last seq that it gave, the last seq that it must not give again, and its
-- options. The statement also returns whether the row of relay shows that the log comes from another
-- server and was not adopted yet: adopt.sql says how. If the row does not, ahead.sql looks at the log.
--
-- secured lists the tables that row-level security hides from this role, completely or in part. An
-- event that the relay cannot see would count as published as soon as later events are published.
--
-- The next seq must be above high, because otherwise new events would count as published. CACHE or
-- INCREMENT other than 1 would break the order within a key. CYCLE would use seqs again.
--
-- Locks   none.
-- Index   none; one row of each.
-- Called  by Log.Check and Log.Lead.
SELECT s.last_value - (NOT s.is_called)::int AS last, greatest(r.high, r.floor) AS high, q.seqincrement AS increment, q.seqcache AS cache, q.seqcycle AS cycle,
    r.cluster <> (SELECT system_identifier FROM pg_control_system())
        OR pg_snapshot_xmax(r.snap) > pg_snapshot_xmax(pg_current_snapshot()) AS restored,
    (SELECT coalesce(string_agg(t::text, ', '), '')
     FROM pg_catalog.unnest(ARRAY['postroom.outbox'::regclass, 'postroom.held', 'postroom.archive', 'postroom.republish']) AS t
     WHERE pg_catalog.row_security_active(t)) AS secured
FROM postroom.relay r,
     postroom.outbox_seq_seq s,
     pg_sequence q
--guard:statements-use-only-the-servers-functions = q.seqrelid = 'postroom.outbox_seq_seq'::regclass
WHERE q.seqrelid = 'postroom.outbox_seq_seq'::regclass::oid;
