-- Insert a dead event with the key "stuck", and $1 more events of this key that wait behind the
-- dead event.
--
-- Locks   the new rows.
-- Called  by backlog.block, before an inbox runs.
WITH decided AS (
    INSERT INTO postroom.inbox (handler, dedupe_key)
    SELECT 'bench', 'stuck ' || n FROM generate_series(0, $1::int) AS n
    RETURNING dedupe_key
)
INSERT INTO postroom.held (handler, dedupe_key, chain, pos, dead_at, class, logged_at, source, event_id, type, subject, key, content_type, data)
SELECT 'bench', dedupe_key, 'stuck', n - $1 - 1, CASE WHEN n = 0 THEN now() END, CASE WHEN n = 0 THEN 'error' END, now(),
       '/stuck', n::text, 'stuck', 'stuck', 'stuck', 'application/json', $2
FROM decided
CROSS JOIN LATERAL (SELECT substr(dedupe_key, 7)::int AS n) of;
