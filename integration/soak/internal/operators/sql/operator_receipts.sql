-- Record calls of handler $1: for its newest $2 events, a call that is done, and for every fourth
-- of its dead events, a call that was never answered.
--
-- Locks   the new rows.
-- Called  by office.history.
INSERT INTO postroom.receipt (handler, dedupe_key, step, revision, key, unanswered, started_at, done_at, result)
SELECT i.handler, i.dedupe_key, 'send', 0, md5(i.dedupe_key), CASE WHEN open THEN 1 ELSE 0 END, i.at, CASE WHEN NOT open THEN i.at END, NULL
FROM (
    (SELECT handler, dedupe_key, at, false AS open FROM postroom.inbox WHERE handler = $1 ORDER BY dedupe_key DESC LIMIT $2)
    UNION
    SELECT held.handler, held.dedupe_key, held.held_at, true FROM postroom.held WHERE handler = $1 AND dead_at IS NOT NULL AND id % 4 = 0
) i
ON CONFLICT DO NOTHING;
