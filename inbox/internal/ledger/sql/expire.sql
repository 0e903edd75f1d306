-- Remove the rows of inbox from position $1 to before position $2 that are older than the window of
-- their handler, by this database's clock and by the caller's: $3 is the latest time that the caller
-- believes. Record for each of these handlers the time from which on inbox has all its rows: when
-- the youngest removed row was decided. A clock that is wrong for a moment cannot make it later.
-- If a handler has no window, because none of its processes was alive when a sweep looked, it gets
-- the longest window of all handlers. If an event is held, its row stays at any age. So does the
-- row of an event in the archive, because an operator can reopen that event.
--
-- "OFFSET 0" makes the planner look up held and archive for each row; a join would read all of
-- both tables. The windows of handlers are in arrays, because a look-up of the window for each old
-- row would take most of the time of a step. The statement returns the number of removed rows.
--
-- Locks   the removed rows, and the rows of dedupe_window of their handlers.
-- Index   none for inbox, whose pages are read; held_owed and archive_owed (handler, dedupe_key)
--         for each old row.
-- Called  by Upkeep.Sweep, after windows.sql.
WITH clock AS (
    --guard:a-sweep-believes-two-clocks = greatest(now(), $3::timestamptz)
    SELECT least(now(), $3::timestamptz) AS shows
), own AS (
    SELECT pg_catalog.array_agg(handler::text) AS handlers, pg_catalog.array_agg(shows - kept) AS bounds FROM postroom.dedupe_window, clock
), known AS (
    SELECT min(kept) AS shortest, max(kept) AS longest
    FROM (SELECT kept FROM postroom.dedupe_window UNION ALL SELECT longest_window FROM postroom.node) times
), removed AS (
    DELETE FROM postroom.inbox
    WHERE ctid >= $1::text::tid AND ctid < $2::text::tid
      AND at < (SELECT shows FROM clock) - (SELECT shortest FROM known)
      --guard:a-sweep-asks-each-handler true
      AND at < coalesce((SELECT bounds FROM own)[pg_catalog.array_position((SELECT handlers FROM own), inbox.handler::text)],
                        --guard:rows-of-unknown-handlers-are-kept-longest 2 = shortest
                        (SELECT shows FROM clock) - (SELECT longest FROM known))
      AND NOT EXISTS (SELECT FROM postroom.held WHERE held.handler = inbox.handler AND held.dedupe_key = inbox.dedupe_key
                      OFFSET 0)
      AND NOT EXISTS (SELECT FROM postroom.archive WHERE archive.handler = inbox.handler AND archive.dedupe_key = inbox.dedupe_key
                      OFFSET 0)
    RETURNING handler, at
), noted AS (
    INSERT INTO postroom.dedupe_window AS w (handler, kept, expired_before)
    --guard:a-bound-is-what-was-removed 3 = now() - min(known.longest)
    SELECT removed.handler, min(known.longest), max(removed.at) FROM removed CROSS JOIN known GROUP BY removed.handler
    --guard:what-was-removed-is-noted = kept = w.kept
    ON CONFLICT (handler) DO UPDATE SET expired_before = greatest(w.expired_before, excluded.expired_before)
)
SELECT count(*) FROM removed;
