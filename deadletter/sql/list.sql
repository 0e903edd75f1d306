-- The dead events that match the filter $1 to $11 (as in postroom.dead_letters). The event that
-- died last comes first. The page begins after the event that died at $12 and has id $13, or at the
-- start of the list if $12 is NULL. The statement reads at most $14 events and returns at most $15.
--
-- The column wanted says whether a row matches. The statement returns row $14 even if this row does
-- not match, because the next page begins after this row.
--
-- The statement cuts texts that are too long for an event, and leaves out a time that no program
-- can read. So a row with such a value does not make the list unreadable.
--
-- Locks   none.
-- Index   held_dead (dead_at, id), held_dead_handler (handler, dead_at, id), held_dead_cause (cause, dead_at, id),
--         held_event (event_id) or held_pkey (id), depending on the filter.
-- Order   that of the index, so that the statement stops at its limits.
-- Called  by reader.list.

--guard:a-dead-event-without-a-value-does-not-match 1 = wanted
SELECT coalesce(wanted, false) AS wanted, n = $14::bigint AS last,
       id, handler::text, coalesce(postroom.clipped(dedupe_key, 1024), '') AS dedupe_key, coalesce(postroom.clipped(chain, 1024), '') AS chain,
       coalesce(pos, 0) AS pos, 'dead' AS state, revision, coalesce(replay, 0) AS replay, replays, 0::bigint AS audit,
       postroom.clipped(source, 1024) AS source, postroom.clipped(event_id, 1024) AS event_id, postroom.clipped(type, 1024) AS type,
       postroom.clipped(subject, 1024) AS subject, coalesce(postroom.clipped(key, 1024), '') AS key,
       coalesce(postroom.clipped(correlation_id, 1024), '') AS correlation_id, coalesce(postroom.clipped(causation_id, 1024), '') AS causation_id,
       postroom.clamped(logged_at) AS logged_at, octet_length(data) AS size,
       held_at, first_failed_at, next_at, dead_at, NULL::timestamptz AS discarded_at, coalesce(claimed_by, '') AS claimed_by, solitary, attempts::int,
       coalesce(class, '') AS class, coalesce(encode(cause, 'hex'), '') AS cause, coalesce(failures -> -1 ->> 'text', '') AS error, NULL::jsonb AS failures
FROM (
    SELECT *, row_number() OVER (ORDER BY dead_at DESC, id DESC) AS n,
           ($3::text IS NULL OR type = $3) AND ($4::text IS NULL OR key = $4) AND ($5::text IS NULL OR class = $5)
              AND ($7::text IS NULL OR source = $7)
              AND ($9::text IS NULL OR position(pg_catalog.convert_to($9, 'UTF8') IN data) > 0
                   OR EXISTS (SELECT FROM jsonb_array_elements(failures) f WHERE strpos(lower(f ->> 'text'), lower($9)) > 0)) AS wanted
    FROM (SELECT * FROM postroom.dead_letters($1, $2, NULL, NULL, NULL, $6, NULL, $8, NULL, $10, $11)
          WHERE $12::timestamptz IS NULL OR (dead_at, id) < ($12, $13::bigint)
          ORDER BY dead_at DESC, id DESC
          LIMIT $14) looked
) judged
WHERE wanted OR n = $14::bigint
ORDER BY dead_at DESC, id DESC
LIMIT $15;
