-- How many events have been dead for longer than $1, and also for longer than their handler's inbox
-- rows are kept (dedupe_window). Also how many events were discarded longer ago than $1. Each
-- number is at most 10,000, and comes with the age of the oldest of its events.
--
-- Locks   none.
-- Index   held_dead (dead_at, id), archive_time (discarded_at, id).
-- Called  by checkDead.
WITH own AS (
    SELECT pg_catalog.array_agg(handler::text) AS handlers, pg_catalog.array_agg(now() - kept) AS bounds FROM postroom.dedupe_window
)
SELECT d.events AS dead, coalesce(extract(epoch FROM now() - d.oldest), 0)::float8 AS dead_age,
       a.events AS archived, coalesce(extract(epoch FROM now() - a.oldest), 0)::float8 AS archived_age
FROM (SELECT count(*) AS events, min(dead_at) AS oldest
      FROM (SELECT dead_at FROM postroom.held
            WHERE dead_at IS NOT NULL AND dead_at < now() - $1::interval
              AND dead_at < coalesce((SELECT bounds FROM own)[pg_catalog.array_position((SELECT handlers FROM own), held.handler::text)],
                                     now() - $1::interval)
            ORDER BY dead_at, id LIMIT 10000) rows) d,
     (SELECT count(*) AS events, min(discarded_at) AS oldest
      FROM (SELECT discarded_at FROM postroom.archive
            WHERE discarded_at < now() - $1::interval ORDER BY discarded_at, id LIMIT 10000) rows) a;
