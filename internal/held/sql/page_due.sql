-- Held events of a handler that have a due time: they are scheduled, wait for another attempt, or
-- run. The event that is due first comes first.
--
-- $1 the handler   $2 the states; NULL selects all   $3 type   $4 the key that the producer gave
-- the event   $5 class of the last failure   $6 due at this time or later   $7 due before this
-- time
-- $8, $9 the due time and id of the row after which the page begins; NULL at the start
-- $10 not used
-- $11 the maximum number of rows to read   $12 the maximum number of rows to return
--
-- The column wanted says whether a row matches. The statement returns row $11 even if this row does
-- not match, because the next page begins after this row.
--
-- Locks   none.
-- Index   held_due (handler, next_at, pos), and a sort by id of the rows with one due time.
-- Order   that of the index, so that the statement stops at its limits.
-- Called  by Reader.Page.

--guard:a-held-event-without-a-value-does-not-match 1 = wanted
SELECT coalesce(wanted, false) AS wanted, n = $11::bigint AS last,
       id, handler::text, coalesce(postroom.clipped(dedupe_key, 1024), '') AS dedupe_key, coalesce(postroom.clipped(chain, 1024), '') AS chain,
       coalesce(pos, 0) AS pos, state, revision, coalesce(replay, 0) AS replay, replays, 0::bigint AS audit,
       postroom.clipped(source, 1024) AS source, postroom.clipped(event_id, 1024) AS event_id, postroom.clipped(type, 1024) AS type,
       postroom.clipped(subject, 1024) AS subject, coalesce(postroom.clipped(key, 1024), '') AS key,
       coalesce(postroom.clipped(correlation_id, 1024), '') AS correlation_id, coalesce(postroom.clipped(causation_id, 1024), '') AS causation_id,
       postroom.clamped(logged_at) AS logged_at, octet_length(data) AS size,
       held_at, first_failed_at, next_at, dead_at, NULL::timestamptz AS discarded_at, coalesce(claimed_by, '') AS claimed_by, solitary, attempts::int,
       coalesce(class, '') AS class, coalesce(encode(cause, 'hex'), '') AS cause, coalesce(failures -> -1 ->> 'text', '') AS error, NULL::jsonb AS failures
FROM (
    SELECT *, ($2::text[] IS NULL OR state = ANY ($2)) AND ($3::text IS NULL OR type = $3) AND ($4::text IS NULL OR key = $4)
              AND ($5::text IS NULL OR class = $5) AND ($6::timestamptz IS NULL OR next_at >= $6) AND ($7::timestamptz IS NULL OR next_at < $7) AS wanted
    FROM (
        SELECT *, row_number() OVER (ORDER BY next_at, id) AS n,
           CASE WHEN dead_at IS NOT NULL THEN 'dead'
                WHEN next_at IS NULL THEN 'waiting'
                WHEN claimed_by IS NOT NULL THEN CASE WHEN next_at > now() OR handler = 'outbox' THEN 'running' ELSE 'abandoned' END
                WHEN next_at <= now() THEN 'due'
                WHEN class IS NULL AND chain IS NULL THEN 'scheduled'
                ELSE 'retrying' END AS state
        FROM (SELECT * FROM postroom.held
              WHERE handler = $1 AND next_at IS NOT NULL AND ($6::timestamptz IS NULL OR next_at >= $6)
                AND ($8::timestamptz IS NULL OR next_at >= $8 AND (next_at, id) > ($8, $9::bigint))
                AND ($10::text IS NULL OR true)
              ORDER BY next_at, id
              LIMIT $11::bigint) h
    ) looked
) judged
WHERE wanted OR n = $11::bigint
ORDER BY judged.next_at, judged.id
LIMIT $12;
