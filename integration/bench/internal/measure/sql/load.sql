-- Append $1 events of $2 bytes of JSON to the log, in one statement.
--
-- $3 type and subject   $4 source   $5 the keys of the events:
--   distinct  each event has a key of its own
--   none      no event has a key
--   modulo    the events have $6 keys: the n-th event has key n modulo $6
--   hot       every $6th event has the same key, the other events have distinct keys
--   refused   like hot, but the events with the same key have a subject without a stream
--
-- The digest is of the data only. It matters only if a producer writes an event again, and that
-- does not happen here.
--
-- Locks   the new rows.
-- Called  by servers.backlog.
INSERT INTO postroom.outbox (digest, source, event_id, type, subject, key, data, checked)
SELECT substring(sha256(data) FROM 1 FOR 16), $4, gen_random_uuid()::text, $3::text,
       CASE WHEN $5::text = 'refused' AND n % $6::int = 0 THEN $3::text || '.refused' ELSE $3::text END,
       CASE $5::text
           WHEN 'distinct' THEN 'key-' || n
           WHEN 'modulo' THEN 'key-' || n % $6::int
           WHEN 'hot' THEN CASE n % $6::int WHEN 0 THEN 'key-hot' ELSE 'key-' || n END
           WHEN 'refused' THEN CASE n % $6::int WHEN 0 THEN 'key-refused' ELSE 'key-' || n END
       END,
       data, true
FROM (
    SELECT n, convert_to(rpad('{"order": ' || n || ', "note": "', $2::int - 2, 'x') || '"}', 'UTF8') AS data
    FROM generate_series(1, $1::int) n
) events
ORDER BY n;
