-- The processes for whose locks server process $1 waits, as a text. If there are none, the text is
-- empty. The statement shows no query, because a query may have values in it.
--
-- Locks   none.
-- Index   none.
-- Called  by Term.Record, Term.Renew and Term.Prune, if they do not end in time.
SELECT coalesce(pg_catalog.string_agg(
    CASE WHEN b.pid OPERATOR(pg_catalog.=) 0 THEN 'a prepared transaction'
         ELSE pg_catalog.format('process %s (%s, %s, its transaction began at %s)', b.pid,
                                coalesce(nullif(a.application_name, ''), 'without an application_name'),
                                coalesce(a.state, 'state hidden'), coalesce(a.xact_start::timestamptz(0)::text, 'a hidden time')) END, ' and '), '')
FROM pg_catalog.unnest(pg_catalog.pg_blocking_pids($1)) AS b (pid)
LEFT JOIN pg_catalog.pg_stat_activity AS a ON a.pid = b.pid;
