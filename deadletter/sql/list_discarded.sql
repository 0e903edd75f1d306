-- The discarded events that match the filter $1 to $11 (as in postroom.discarded). The event that
-- was discarded last comes first. The page begins after the event that was discarded at $12 and has
-- id $13, or at the start of the list if $12 is NULL. The statement reads at most $14 events and
-- returns at most $15.
--
-- About the column wanted, row $14 and the cut texts, see list.sql.
--
-- Locks   none.
-- Index   archive_time (discarded_at, id), archive_event (event_id) or archive_pkey (id), depending on the filter.
-- Order   that of the index, so that the statement stops at its limits.
-- Called  by reader.list.
SELECT coalesce(wanted, false) AS wanted, n = $14::bigint AS last,
       id, handler::text, coalesce(postroom.clipped(dedupe_key, 1024), '') AS dedupe_key, '' AS key,
       coalesce(pos, 0) AS pos, 'discarded' AS state, revision, coalesce(replay, 0) AS replay, replays, audit,
       postroom.clipped(source, 1024) AS source, postroom.clipped(event_id, 1024) AS event_id, postroom.clipped(type, 1024) AS type,
       postroom.clipped(subject, 1024) AS subject, coalesce(postroom.clipped(key, 1024), '') AS key,
       coalesce(postroom.clipped(correlation_id, 1024), '') AS correlation_id, coalesce(postroom.clipped(causation_id, 1024), '') AS causation_id,
       postroom.clamped(logged_at) AS logged_at, octet_length(data) AS size,
       held_at, first_failed_at, NULL::timestamptz AS next_at, dead_at, discarded_at, '' AS claimed_by, solitary, attempts::int,
       coalesce(class, '') AS class, coalesce(encode(cause, 'hex'), '') AS cause, coalesce(failures -> -1 ->> 'text', '') AS error, NULL::jsonb AS failures
FROM (
    SELECT *, row_number() OVER (ORDER BY discarded_at DESC, id DESC) AS n,
           ($3::text IS NULL OR type = $3) AND ($4::text IS NULL OR key = $4) AND ($5::text IS NULL OR class = $5)
              AND ($7::text IS NULL OR source = $7)
              AND ($9::text IS NULL OR position(pg_catalog.convert_to($9, 'UTF8') IN data) > 0
                   OR EXISTS (SELECT FROM jsonb_array_elements(failures) f WHERE strpos(lower(f ->> 'text'), lower($9)) > 0)) AS wanted
    FROM (SELECT * FROM postroom.discarded($1, $2, NULL, NULL, NULL, $6, NULL, $8, NULL, $10, $11)
          WHERE $12::timestamptz IS NULL OR (discarded_at, id) < ($12, $13::bigint)
          ORDER BY discarded_at DESC, id DESC
          LIMIT $14) looked
) judged
WHERE wanted OR n = $14::bigint
ORDER BY discarded_at DESC, id DESC
LIMIT $15;
