-- Insert $3 held events of handler $1 in state $2, due or dead, with their inbox rows.
--
-- Locks   the new rows.
-- Called  by TestStatesAreCountedBesideEachOther.
WITH events AS (
    SELECT $2::text || n AS id FROM generate_series(1, $3::int) n
), decided AS (
    INSERT INTO postroom.inbox (handler, dedupe_key) SELECT $1, '/shop ' || id FROM events
)
INSERT INTO postroom.held (handler, dedupe_key, next_at, dead_at, attempts, class, cause, logged_at, source, event_id, type, subject, content_type, data)
SELECT $1, '/shop ' || id, CASE WHEN $2 = 'due' THEN now() END, CASE WHEN $2 = 'dead' THEN now() END, 1, 'error', decode(md5($1), 'hex'),
       now(), '/shop', id, 'a', 'a', 'application/json', '{}'
FROM events;
