-- Append $1 events with distinct keys to the log, with $2 bytes of JSON each, in
-- one statement.
--
-- $3 type and subject   $4 source   $5 the beginning of the ids
--
-- The ids rise, as those of producers do. The digest covers only the data. That is enough, because
-- no event is written a second time.
--
-- Locks   the new rows.
-- Called  by Database.Load.
INSERT INTO postroom.outbox (digest, source, event_id, type, subject, key, data, checked)
SELECT substring(sha256(data) FROM 1 FOR 16), $4, $5 || '-' || lpad(n::text, 12, '0'), $3, $3, 'key-' || n, data, true
FROM (
    SELECT n, convert_to(rpad('{"key": ' || n || ', "n": 1, "pad": "', $2::int - 2, 'x') || '"}', 'UTF8') AS data
    FROM generate_series(1, $1::int) n
) events
ORDER BY n;
