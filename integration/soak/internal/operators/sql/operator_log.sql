-- Append $1 events to the log, from number $2 on, as a shop writes them. Of six events, one is a
-- charge, one is a move of one of $5 accounts, and one is a mail. No running handler reads the
-- other three. One event in ten was caused by the event before it. The first $6 events whose number
-- is 1 more than a multiple of 666 are scheduled.
--
-- $3 source   $4 age of the first event; the last is two minutes old if the first is older
-- If there are no accounts, every event has its own key.
--
-- Locks   the new rows.
-- Called  by office.log.
INSERT INTO postroom.outbox (created_at, digest, source, event_id, type, subject, key, correlation_id, causation_id, not_before, data)
SELECT at, substring(sha256(data) FROM 1 FOR 16), $3, id, type, type, key, cause, cause, not_before, data
FROM (
    SELECT n, 'event-' || lpad(n::text, 10, '0') AS id,
           (ARRAY['soak.charged', 'soak.changed', 'soak.moved', 'soak.changed', 'soak.mailed', 'soak.changed'])[1 + n % 6] AS type,
           CASE WHEN n % 6 = 2 AND $5::int > 0 THEN 'account-' || (n / 6) % $5 ELSE 'key-' || n END AS key,
           CASE WHEN n % 10 = 5 THEN 'event-' || lpad((n - 1)::text, 10, '0') END AS cause,
           CASE WHEN n % 666 = 1 AND n < 666 * $6::int THEN now() + interval '1 hour' + n % 700 * interval '1 minute' END AS not_before,
           now() - $4::interval + greatest($4::interval - interval '2 minutes', interval '0') * ((n - $2) / $1::float8) AS at,
           convert_to(rpad('{"n": ' || n || ', "pad": "', 62, 'x') || '"}', 'UTF8') AS data
    FROM generate_series($2::int, $2 + $1::int - 1) n
) events
ORDER BY n;
