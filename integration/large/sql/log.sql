-- Append the events with the numbers $2 to $3 to the log. $1 is the number of all events. Ten
-- events in a row are a business process and have the same correlation id. Each of them, except the
-- first, was caused by an earlier event of the process.
--
-- Locks   the new rows.
-- Called  by fill.
INSERT INTO postroom.outbox (created_at, digest, source, event_id, type, subject, key, correlation_id, causation_id, trace_parent, checked, data)
SELECT now() - interval '70 hours' * (($1::bigint - n) / $1::float8),
       decode(lpad(to_hex(n), 32, '0'), 'hex'), '/shop-' || n % 4, 'event-' || n,
       (ARRAY['order.placed', 'order.paid', 'order.packed', 'order.sent', 'mail.sent'])[1 + n / 80 % 5], 'shop.changed',
       'order-' || n / 10, 'process-' || n / 10,
       CASE WHEN n % 10 > 0 THEN 'event-' || n - n % 10 + (n % 10 - 1) / 2 END,
       '00-' || lpad(to_hex(n / 10 + 1), 32, '0') || '-' || lpad(to_hex(n + 1), 16, '0') || '-01',
       true, convert_to('{"n": ' || n || ', "pad": "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"}', 'UTF8')
FROM generate_series($2::bigint, $3::bigint) n
ORDER BY n;
