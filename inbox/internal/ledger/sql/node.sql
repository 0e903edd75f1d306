-- Record that process $1 is alive, with name $2 and handlers $3. $4 says for how long the process
-- needs the inbox rows of each of these handlers, and $5 up to which age it runs their events. $6
-- is the longest time for which it needs rows. $7 are its handlers that paused because of failures.
-- Remove the rows of processes that gave no sign of life for an hour. The statement returns the
-- database's clock, the id of this Postroom database, and for each handler the time from which on
-- inbox has all its rows (NULL: no row was removed yet).
--
-- Locks   the process's row, and the rows that are removed. Waits for a step of a sweep.
-- Index   the primary keys; otherwise none, there are as many rows as processes.
-- Called  by Upkeep.Beat.
WITH forgotten AS (
    DELETE FROM postroom.node WHERE seen_at < now() - interval '1 hour' AND id <> $1
)
INSERT INTO postroom.node (id, name, handlers, dedupe_windows, max_event_ages, longest_window, paused)
VALUES ($1, $2, $3, $4, $5, $6, $7::jsonb)
ON CONFLICT (id) DO UPDATE SET seen_at = now(), paused = excluded.paused
RETURNING clock_timestamp(), (SELECT id::text FROM postroom.instance),
          ARRAY(SELECT w.expired_before FROM pg_catalog.unnest($3::text[]) WITH ORDINALITY AS h (handler, n)
                LEFT JOIN postroom.dedupe_window w ON w.handler = h.handler
                ORDER BY h.n);
