-- How far behind the relay is, and how many events are held.
--
-- As the oldest event that is committed and not recorded as published, the statement takes the
-- oldest of three events: the first event above high, the first event of pending, and, if the relay
-- catches up with late events, the first event that it has not passed. The statement computes the
-- number of such events from the seqs, so unused seqs count as events, and so do published events
-- between those with which the relay catches up. It reads at most 10,000 dead events, as many waiting ones, and
-- as many of the others, the first that are due. An event whose time is outside the years 1 to 9999, or in the future, has
-- no age.
--
-- The statement finds the writers of the log by their lock on the table outbox. A transaction keeps
-- this lock until it ends, even if it is prepared. A role can see when the transaction of a session
-- began only if it is a member of the session's role or of pg_read_all_stats. If the relay's role
-- cannot see when a transaction began, the statement only counts the transaction.
--
-- Locks   none.
-- Index   outbox_pkey (seq), its end and two seqs; held_due (handler, next_at, pos), held_dead_handler (handler,
--         dead_at, id), held_waiting (handler, held_at).
-- Called  by Log.Lag.
SELECT coalesce(greatest(extract(epoch FROM clock_timestamp() - least(above.at, owed.at, behind.at)), 0), 0)::float8 AS age,
       greatest(coalesce(last.seq, 0) - r.high, 0) + coalesce((SELECT sum(pg_catalog.upper(p) - pg_catalog.lower(p)) FROM pg_catalog.unnest(r.pending) p), 0)::bigint
           + CASE WHEN behind.at IS NOT NULL THEN r.high - r.catch_up_passed ELSE 0 END AS events,
       s.last_value - (NOT s.is_called)::int AS appended,
       held.*, writers.*
FROM postroom.relay r
CROSS JOIN postroom.outbox_seq_seq s
LEFT JOIN LATERAL (SELECT seq FROM postroom.outbox ORDER BY seq DESC LIMIT 1) last ON true
LEFT JOIN LATERAL (SELECT postroom.clamped(created_at) AS at FROM postroom.outbox WHERE seq > r.high ORDER BY seq LIMIT 1) above ON true
LEFT JOIN LATERAL (SELECT postroom.clamped(created_at) AS at FROM postroom.outbox
                   WHERE seq >= pg_catalog.lower(r.pending) AND seq < pg_catalog.upper(r.pending) ORDER BY seq LIMIT 1) owed ON true
LEFT JOIN LATERAL (SELECT postroom.clamped(created_at) AS at FROM postroom.outbox
                   --guard:the-lag-counts-what-a-relay-catches-up-with false
                   WHERE r.catch_up_snap::text OPERATOR(pg_catalog.<>) r.snap::text AND seq > r.catch_up_passed AND seq <= r.high ORDER BY seq LIMIT 1) behind ON true
CROSS JOIN LATERAL (
    SELECT count(*) FILTER (WHERE next_at IS NOT NULL AND class IS NULL AND chain IS NULL) AS scheduled,
           count(*) FILTER (WHERE next_at IS NOT NULL AND (class IS NOT NULL OR chain IS NOT NULL)) AS retrying,
           count(*) FILTER (WHERE next_at IS NULL AND dead_at IS NULL) AS waiting,
           count(*) FILTER (WHERE dead_at IS NOT NULL) AS dead,
           pg_catalog.count(DISTINCT chain) AS keys,
           coalesce(extract(epoch FROM clock_timestamp() - min(first_failed_at) FILTER (WHERE next_at IS NOT NULL)), 0)::float8 AS retrying_age,
           coalesce(extract(epoch FROM clock_timestamp() - min(held_at) FILTER (WHERE next_at IS NULL AND dead_at IS NULL)), 0)::float8 AS waiting_age,
           coalesce(extract(epoch FROM clock_timestamp() - min(dead_at)), 0)::float8 AS dead_age,
           coalesce(greatest(extract(epoch FROM clock_timestamp() - min(next_at)), 0), 0)::float8 AS overdue
    FROM (
        (SELECT chain, next_at, dead_at, class, held_at, first_failed_at FROM postroom.held
         WHERE handler = 'outbox' AND next_at IS NOT NULL ORDER BY next_at, pos LIMIT 10000)
        UNION ALL
        --guard:the-relay-counts-the-dead-by-themselves false
        (SELECT chain, next_at, dead_at, class, held_at, first_failed_at FROM postroom.held
         WHERE handler = 'outbox' AND dead_at IS NOT NULL ORDER BY dead_at, id LIMIT 10000)
        UNION ALL
        (SELECT chain, next_at, dead_at, class, held_at, first_failed_at FROM postroom.held
         WHERE handler = 'outbox' AND coalesce(next_at, dead_at) IS NULL ORDER BY held_at LIMIT 10000)
    ) h
) held
CROSS JOIN LATERAL (
    SELECT coalesce(greatest(extract(epoch FROM clock_timestamp() - min(coalesce(a.xact_start, p.prepared))), 0), 0)::float8 AS writer_age,
           count(*) FILTER (WHERE a.xact_start IS NULL AND (a.state IS NULL OR a.state = 'disabled') AND a.pid IS NOT NULL) AS writers_untold
    FROM pg_locks l
    LEFT JOIN pg_stat_activity a ON a.pid = l.pid
    LEFT JOIN pg_locks x ON l.pid IS NULL AND x.pid IS NULL AND x.locktype = 'transactionid' AND x.virtualtransaction = l.virtualtransaction
    LEFT JOIN pg_prepared_xacts p ON p.transaction = x.transactionid
    WHERE l.locktype = 'relation' AND l.relation = 'postroom.outbox'::regclass::oid AND l.mode = 'RowExclusiveLock' AND l.granted
      AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
) writers;
