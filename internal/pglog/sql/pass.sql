-- One pass over the log: the rows that became visible since the snapshot of the previous
-- pass, the next page, and the held events that are due.
--
-- $1 high: the last seq that was read   $2 floor   $3 snap: the previous pass's snapshot
-- $4 the most rows of each kind   $5 seqs of held events that the relay is publishing
-- $6 from when on events are due that part 3 looks at; '-infinity' for all of them
--
-- A pass is one statement, so all its parts have one snapshot. The row of part 0 returns that
-- snapshot, which is $3 of the next pass. Part 1 finds the rows up to high that are visible in this
-- snapshot and were not visible in $3. The transaction of such a row was in progress in $3 (xip) or
-- began later (from xmax on). No other row can have become visible. So the relay loses no row, and
-- need not remember gaps in the seqs. If part 1 has one row more than $4, or ends at 4 MiB (see
-- below), it may lack late rows, also lower ones: see late_by_xid.sql. So it need not read more rows.
--
-- The cost of part 1 must depend only on the number of late rows, even if many rows were committed
-- since $3. The limits of seq are conditions of the index (xid, seq). So the server skips rows
-- above high in the index and never fetches them. If a transaction that was open in $3 is still
-- open, the server does not search for its rows, because none of them is visible. Two things make
-- sure that the planner can use only the index (xid, seq): the comparison of pairs, and "ORDER BY
-- xid, seq" while sorting is off (reader.sql). Otherwise the planner could choose the primary key,
-- because it does not know how few rows match the transaction ids. Then the server would read all
-- rows up to high. If very many rows were committed since the previous pass, Term.Read first runs
-- late_by_xid.sql or late_by_seq.sql in steps.
--
-- The statement does not return values that are too large for an event: it returns NULL for data,
-- and the beginning of a text. Otherwise one row could have more than a relay has
-- memory for, or than the server can return. hold.sql says how the relay holds a row with such values.
--
-- Each part ends with the row that brings its data and headers (the column size) to 4 MiB
-- (eventlog.PageBytes) or more. The statement has this limit because the relay does not know the
-- sizes of the next rows beforehand. octet_length does not decompress data, and the server does not
-- fetch data that the statement leaves out. postroom.header_bytes measures headers. A running sum over
-- complete rows takes a tenth of the time of a pass. So for the next page (part 2), the first condition
-- looks at the total (size). The second condition searches for the last row of the page only if that total is
-- too large.
--
-- For an event of the log, the column scheduled says whether its producer has scheduled it. If so, the
-- relay moves the event to held first, even if its time has come. If data is too large for an event, the
-- note is its size in the table, so that the relay knows how much it writes to held. For a held event
-- (part 3), the note has its attempts, the attempt after which it is dead, the number of its replays, its
-- republish, whether its values differ from those in the log, and whether held has no later event of its
-- key. The column scheduled is true if the held event has no order among the events of its key. For an
-- event with an order, the statement also returns the events that wait behind it, up to the next dead one.
--
-- A scheduled event waits until the log is read up to its time (read_to): "cancel if not paid" must not
-- overtake a payment that was committed in time, even if the relay was paused and has a backlog. If the
-- page is the last one, all that was committed before this statement is read with it, and is published
-- before the due events. Otherwise the log is read up to the first row of the page, because the rows
-- behind it were written later. A refused event that is tried again does not wait. If many scheduled
-- events wait, the statement looks only at the last $4 due events for such retries, and finds the
-- others as the log is read.
--
-- While a foreign transaction is open, the server cannot remove the index entries of held events that
-- were published, and a pass over all due events reads them all. So a pass returns (as source) the time
-- a minute before read_to, if no event waits that was due earlier. The next passes may begin there.
-- Term.Read decides which passes do so.
--
-- "(SELECT 'outbox')" keeps the planner from using the index held_outgoing in part 3. A plan that
-- was made while held was empty could use that index, and read all of it.
--
-- Locks   none.
-- Index   outbox_xid_seq (xid, seq), outbox_pkey (seq), and for part 3 held_due (handler, next_at, pos), then
--         held_pkey (id) or held_chain_pos (handler, chain, pos).
-- Order   by part and seq.
-- Called  by Term.Read.
WITH late AS (
    SELECT *
    FROM (
        SELECT o.*
        FROM pg_snapshot_xip($3::pg_snapshot) AS ended (xid)
        CROSS JOIN LATERAL (SELECT * FROM postroom.outbox o
                            WHERE (o.xid, o.seq) > (ended.xid, $2) AND (o.xid, o.seq) <= (ended.xid, $1)
                            ORDER BY o.xid, o.seq
                            --guard:a-pass-reads-a-page-of-late-rows do OFFSET 0
                            LIMIT $4::bigint + 1) o
        --guard:late-row-rule false
        --guard:open-transactions-cost-a-pass-nothing = @2 IS NOT NULL
        --planted:late-rows-ignored false
        WHERE pg_visible_in_snapshot(ended.xid, pg_current_snapshot())
        UNION ALL
        (SELECT * FROM postroom.outbox
         --guard:late-row-rule-of-new-transactions false
         WHERE xid >= pg_snapshot_xmax($3::pg_snapshot) AND xid < pg_snapshot_xmax(pg_current_snapshot())
           --guard:late-rows-cost-no-rows-above-high = seq + 0 <= $1 AND seq + 0 > $2
           AND seq <= $1 AND seq > $2
         ORDER BY xid, seq
         --guard:a-pass-reads-a-page-of-late-rows/2 do OFFSET 0
         LIMIT $4::bigint + 1)
    ) late
    ORDER BY seq
    LIMIT $4::bigint + 1
), page AS (
    SELECT *
    FROM postroom.outbox
    WHERE seq > $1
    ORDER BY seq
    LIMIT $4
), size AS MATERIALIZED ( -- of the page, if its bytes did not end it
    SELECT count(*) AS rows, min(created_at) AS since,
           coalesce(sum(octet_length(data)), 0)
           --guard:the-headers-of-a-page-are-bounded remove
           + coalesce(sum(postroom.header_bytes(headers)), 0)
           AS bytes
    FROM (SELECT data, headers, created_at FROM postroom.outbox WHERE seq > $1 ORDER BY seq LIMIT $4) page
), read_to AS MATERIALIZED (
    --guard:a-due-event-waits-for-the-log do SELECT now() AS at
    SELECT CASE WHEN rows < $4 AND bytes < 4194304 THEN now() ELSE least(since, now()) END AS at FROM size
), first_due AS (
    (SELECT id, chain, pos, next_at FROM postroom.held
     --guard:held-events-in-flight-are-not-read-again 3 true
     WHERE handler = (SELECT 'outbox') AND next_at <= (SELECT at FROM read_to) AND pos <> ALL ($5) AND next_at >= $6::text::timestamptz
     ORDER BY next_at, pos
     LIMIT $4)
    UNION ALL
    SELECT id, chain, pos, next_at
    FROM (SELECT * FROM postroom.held
          --guard:held-events-in-flight-are-not-read-again/2 4 true
          WHERE handler = (SELECT 'outbox') AND next_at > (SELECT at FROM read_to) AND next_at <= now() AND pos <> ALL ($5) AND next_at >= $6::text::timestamptz
          ORDER BY next_at DESC, pos DESC
          LIMIT $4) newest
    --guard:a-retry-does-not-wait-for-the-log false
    WHERE chain IS NOT NULL OR attempts > 0 OR replays > 0
    LIMIT $4
), due AS (
    SELECT held.*
    FROM first_due due
    CROSS JOIN LATERAL (
        SELECT *, false AS blocked, false AS last FROM postroom.held WHERE due.chain IS NULL AND id = due.id
        UNION ALL
        (SELECT *, bool_or(dead_at IS NOT NULL) OVER (ORDER BY pos) AS blocked,
                --guard:the-last-held-event-of-a-key-is-told do false AS last
                lead(pos) OVER (ORDER BY pos) IS NULL AND row_number() OVER (ORDER BY pos) < $4 AS last
         FROM (SELECT * FROM postroom.held
               WHERE handler = (SELECT 'outbox') AND chain = due.chain AND pos >= due.pos
               ORDER BY pos
               --guard:a-key-drains-by-pages do LIMIT least($4, 100)
               LIMIT $4) behind)
    ) held
    --guard:events-behind-a-dead-one-wait true
    WHERE NOT held.blocked
    LIMIT $4
)
SELECT part, seq, note,
       --guard:texts-that-are-too-large-are-not-read = event_id
       CASE WHEN octet_length(event_id) <= 512 THEN event_id ELSE left(event_id, 513) END AS event_id,
       CASE WHEN octet_length(source) <= 512 THEN source ELSE left(source, 513) END AS source,
       CASE WHEN octet_length(type) <= 512 THEN type ELSE left(type, 513) END AS type,
       CASE WHEN octet_length(subject) <= 512 THEN subject ELSE left(subject, 513) END AS subject,
       CASE WHEN octet_length(key) <= 512 THEN key ELSE left(key, 513) END AS key,
       CASE WHEN octet_length(content_type) <= 512 THEN content_type ELSE left(content_type, 513) END AS content_type,
       CASE WHEN octet_length(correlation_id) <= 512 THEN correlation_id ELSE left(correlation_id, 513) END AS correlation_id,
       CASE WHEN octet_length(causation_id) <= 512 THEN causation_id ELSE left(causation_id, 513) END AS causation_id,
       occurred_at,
       CASE WHEN octet_length(trace_parent) <= 512 THEN trace_parent ELSE left(trace_parent, 513) END AS trace_parent,
       CASE WHEN octet_length(trace_state) <= 512 THEN trace_state ELSE left(trace_state, 513) END AS trace_state,
       headers, data, logged_at, scheduled, size
FROM (
    SELECT 0 AS part, 0::bigint AS seq, pg_current_snapshot()::text AS note, pg_backend_pid()::text AS event_id,
           --guard:due-events-of-before-are-not-passed-over 1 true
           (SELECT CASE WHEN NOT EXISTS (SELECT FROM first_due WHERE next_at < at - interval '1 min') THEN (at - interval '1 min')::text END
            FROM read_to) AS source,
           NULL::text AS type, NULL::text AS subject, NULL::text AS key, NULL::text AS content_type,
           NULL::text AS correlation_id, NULL::text AS causation_id, NULL::timestamptz AS occurred_at,
           NULL::text AS trace_parent, NULL::text AS trace_state, NULL::jsonb AS headers, NULL::bytea AS data,
           clock_timestamp() AS logged_at, false AS scheduled, 0::bigint AS size
    UNION ALL
    (SELECT 1, seq, CASE WHEN octet_length(data) > 983040 THEN pg_column_size(data)::text END, event_id, source, type, subject, key, content_type, correlation_id, causation_id,
            occurred_at, trace_parent, trace_state, headers,
            CASE WHEN octet_length(data) <= 983040 THEN data END,
            greatest(created_at, not_before), coalesce(not_before > created_at, false), size
     FROM (SELECT *, sum(size) OVER (ORDER BY seq ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
           FROM (SELECT *, (CASE WHEN octet_length(data) <= 983040 THEN octet_length(data) ELSE 0 END
                            + coalesce(postroom.header_bytes(headers), 0))::bigint AS size FROM late) late) late
     --guard:late-events-are-bounded-by-their-bytes = @1 >= 0
     WHERE coalesce(before, 0) < 4194304
     ORDER BY seq)
    UNION ALL
    (SELECT 2, seq, CASE WHEN octet_length(data) > 983040 THEN pg_column_size(data)::text END, event_id, source, type, subject, key, content_type, correlation_id, causation_id,
            occurred_at, trace_parent, trace_state, headers,
            CASE WHEN octet_length(data) <= 983040 THEN data END,
            greatest(created_at, not_before),
            --guard:scheduled-events-of-the-log-are-held-first = coalesce(not_before > clock_timestamp(), false)
            coalesce(not_before > created_at, false),
            (CASE WHEN octet_length(data) <= 983040 THEN octet_length(data) ELSE 0 END
             + coalesce(postroom.header_bytes(headers), 0))::bigint
     FROM page
     --guard:a-page-is-bounded-by-its-bytes = @1 >= 0
     WHERE (SELECT bytes FROM size) < 4194304
        OR seq <= (SELECT max(seq)
                   FROM (SELECT seq, sum(CASE WHEN octet_length(data) <= 983040 THEN octet_length(data) ELSE 0 END
                                          + coalesce(postroom.header_bytes(headers), 0))
                                     OVER (ORDER BY seq ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
                         FROM (SELECT seq, data, headers FROM postroom.outbox WHERE seq > $1 ORDER BY seq LIMIT $4) sizes) sizes
                   WHERE coalesce(before, 0) < 4194304)
     ORDER BY seq)
    UNION ALL
    (SELECT 3, pos, format('%s %s %s %s %s %s', attempts, coalesce(last_attempt, 0), replays, coalesce(republish, 0), (raw_headers IS NOT NULL)::int, last::int),
            event_id, source, type, subject, key, content_type, correlation_id, causation_id,
            occurred_at, trace_parent, trace_state, headers,
            CASE WHEN octet_length(data) <= 983040 THEN data END,
            logged_at, chain IS NULL, size
     FROM (SELECT *, sum(size) OVER (ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
           FROM (SELECT *, (CASE WHEN octet_length(data) <= 983040 THEN octet_length(data) ELSE 0 END
                            + coalesce(postroom.header_bytes(headers), 0))::bigint AS size FROM due) due) due
     --guard:due-events-are-bounded-by-their-bytes = @1 >= 0
     WHERE coalesce(before, 0) < 4194304)
) AS read;
