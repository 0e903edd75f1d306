-- The time from which on the table inbox has all rows of handler $1: if an event was written at this
-- time or later and the handler has accepted it, its row is there. NULL: no row was removed, and
-- none is about to be removed. The result is later than the oldest row by a thirtieth of the time
-- for which rows are kept, so that no row is removed while the caller works. If the handler has no
-- such time, its rows are kept for the longest time of all handlers, as expire.sql says.
--
-- Locks   none.
-- Index   the primary key of dedupe_window. dedupe_window and node have few rows.
-- Called  by Sender.mustRecognise.

--guard:webhook-resend-knows-what-was-removed 1 false
SELECT greatest((SELECT expired_before FROM postroom.dedupe_window WHERE handler = $1::text),
                now() - coalesce((SELECT kept FROM postroom.dedupe_window WHERE handler = $1::text),
                                 (SELECT max(kept) FROM (SELECT kept FROM postroom.dedupe_window UNION ALL
                                                         SELECT longest_window FROM postroom.node) times)) * 29::float8 / 30::float8);
