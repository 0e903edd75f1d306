-- The next events of a running republish, and its progress. It is the republish that the relay was
-- reading, or the first one if that one does not run any more.
--
-- $1 the republish that the relay was reading, or 0   $2 the seq up to which it was read   $3 the
-- most events; if it is 0, no event is read   $4 the seqs to read before the rest, or NULL
--
-- A republish with a lower id may become visible while another one is read. It must wait until the
-- other one ends. Otherwise the relay would later begin to read the other one a second time.
--
-- A relay that reads a republish for the first time begins with the events in the republish's
-- column pending. Then it goes on after the seq in the column passed.
--
-- The statement reads at most 2,000 seqs, from the first one that exists. So it takes little time
-- even if few events match. That is necessary because the same connection reads live events. The
-- statement skips events that are not published yet, because the relay will publish them. It skips
-- held events, because the relay or an operator decides about them, and events that were discarded
-- or cancelled. Skipped events count for $3, and for the 4 MiB limit of a page (see pass.sql), too.
--
-- A republish may have many types and keys. "IN" makes the server hash them once for the statement. "= ANY"
-- would search and decompress the list for each row.
--
-- "OFFSET 0" makes the planner look up held and archive for each event. A plan that was made
-- while these tables were empty would read all of them.
--
-- Locks   none.
-- Index   republish_running (id), outbox_pkey (seq), held_outgoing (pos), archive_outgoing (pos).
-- Order   by seq.
-- Called  by Term.ReadRepublish.
WITH running AS (
    SELECT *,
           CASE WHEN id = $1 THEN $4::int8multirange ELSE nullif(pending, '{}') END AS first,
           CASE WHEN id = $1 THEN $2::bigint WHEN pending <> '{}' THEN lower(pending) - 1 ELSE passed END AS place
    FROM postroom.republish
    WHERE state = 'running'
    --guard:a-republish-is-read-to-its-end = @1.1
    ORDER BY id = $1 DESC, id
    LIMIT 1
), narrowed AS (
    SELECT *, coalesce(first, seqs) * int8multirange(int8range(place + 1, NULL)) AS these,
           coalesce(upper(first) - 1, hi) AS last
    FROM running
), begun AS (
    SELECT *, CASE WHEN these IS NULL THEN (SELECT seq FROM postroom.outbox WHERE seq > place ORDER BY seq LIMIT 1)
                   ELSE lower(these) END AS at
    FROM narrowed
), part AS (
    SELECT begun.*, least(last, coalesce(at, last) + 1999) AS through,
           these * int8multirange(int8range(at, at + 2000)) AS those,
           -- a part of it, because pending may be long. If the relay catches up with pending, it has passed a part.
           (SELECT CASE WHEN catch_up_snap::text = snap::text
                        THEN pending * int8multirange(int8range(greatest(at, catch_up_passed + 1), greatest(at + 2000, catch_up_passed + 1))) + catch_up_open
                        ELSE pending * int8multirange(int8range(at, at + 2000)) END
            FROM postroom.relay) AS unpublished
    FROM begun
), found AS MATERIALIZED (
    SELECT o.*,
           o.seq <= relay.high AND NOT part.unpublished @> o.seq
               AND (o.seq <= relay.floor OR pg_visible_in_snapshot(o.xid, relay.snap)
                    --guard:what-a-relay-caught-up-with-is-republished false
                    OR o.seq <= relay.catch_up_passed AND pg_visible_in_snapshot(o.xid, relay.catch_up_snap))
               AND NOT EXISTS (SELECT FROM postroom.held WHERE handler = 'outbox' AND pos = o.seq OFFSET 0)
               AND NOT EXISTS (SELECT FROM postroom.archive WHERE handler = 'outbox' AND pos = o.seq OFFSET 0) AS goes
    FROM part
    CROSS JOIN LATERAL (
        SELECT *, sum(size) OVER (ORDER BY seq ROWS UNBOUNDED PRECEDING) AS bytes
        FROM (
            SELECT *, (CASE WHEN octet_length(data) <= 983040 THEN octet_length(data) ELSE 0 END
                       + coalesce(postroom.header_bytes(headers), 0))::bigint AS size
            FROM postroom.outbox
            WHERE seq >= part.at AND seq <= part.through
              AND (part.those IS NULL OR part.those @> seq)
              AND (part.types IS NULL OR type IN (SELECT unnest(types) FROM running))
              --guard:a-republish-of-many-keys-is-read-fast = (part.keys IS NULL OR key = ANY (part.keys))
              AND (part.keys IS NULL OR key IN (SELECT unnest(keys) FROM running))
              AND (part.since IS NULL OR created_at >= part.since)
              AND (part.until IS NULL OR created_at < part.until)
            ORDER BY seq
            LIMIT $3
        ) o
    ) o
    CROSS JOIN postroom.relay
    --guard:events-of-a-republish-are-bounded-by-their-bytes true
    WHERE o.bytes - o.size < 4194304
), reached AS (
    --guard:a-republish-goes-on-where-the-bytes-ended 1.2 false
    SELECT CASE WHEN count(*) = $3 OR max(bytes) >= 4194304 THEN max(seq) ELSE (SELECT through FROM part) END AS seq,
           count(*) FILTER (WHERE NOT goes) AS skipped
    FROM found
)
SELECT 0 AS part, 0::bigint AS seq,
       jsonb_build_object(
           'before', (SELECT state FROM postroom.republish WHERE id = $1),
           'republish', (SELECT jsonb_build_object('id', id, 'rate', rate, 'events', events, 'hi', hi, 'passed', passed, 'pending', pending,
                                                'published', published, 'skipped', skipped, 'held', held) FROM part),
           'reached', reached.seq, 'left_out', reached.skipped)::text AS note,
       pg_backend_pid()::text AS event_id,
       NULL::text AS source, NULL::text AS type, NULL::text AS subject, NULL::text AS key, NULL::text AS content_type,
       NULL::text AS correlation_id, NULL::text AS causation_id, NULL::timestamptz AS occurred_at,
       NULL::text AS trace_parent, NULL::text AS trace_state, NULL::jsonb AS headers, NULL::bytea AS data,
       clock_timestamp() AS logged_at, false AS scheduled, 0::bigint AS size
FROM reached
UNION ALL
(SELECT 2, seq, NULL, event_id, source, type, subject, key, content_type, correlation_id, causation_id,
        occurred_at, trace_parent, trace_state, headers,
        CASE WHEN octet_length(data) <= 983040 THEN data END,
        greatest(created_at, not_before), false, size
 FROM found
 WHERE goes
 ORDER BY seq);
