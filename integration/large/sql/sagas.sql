-- Insert instances $1 to $2 of six sagas; eight of nine are instances of the saga checkout. One in
-- ten undoes its steps, one in 49 is stuck, and one in a hundred waits for the last step. For
-- every third number, also insert an instance that ended in the last 30 days.
--
-- Locks   the new rows.
-- Called  by fillSagas.
WITH instances AS (
    SELECT CASE WHEN n % 9 = 0 THEN 'other-' || n / 9 % 5 ELSE 'checkout' END AS name, 'order-' || n || CASE WHEN ended THEN '-ended' ELSE '' END AS key, n, ended,
           CASE WHEN ended THEN CASE WHEN n % 7 = 0 THEN 'undone' ELSE 'done' END WHEN n % 10 = 0 THEN 'compensating' ELSE 'running' END AS state,
           CASE WHEN n % 100 = 1 THEN 'confirm' WHEN n % 2 = 0 THEN 'payment' ELSE 'stock' END AS step,
           now() - CASE WHEN ended THEN interval '1 hour' + n % 2000000 * interval '1.2 seconds'
                        WHEN n % 49 = 3 THEN interval '2 hours' + n % 100000 * interval '5 seconds'
                        ELSE n % 3000000 * interval '1 millisecond' END AS waits_since,
           now() - interval '35 days' + n * interval '0.9 seconds' AS started_at
    FROM generate_series($1::bigint, $2::bigint) n
    CROSS JOIN (VALUES (false), (true)) AS e (ended)
    WHERE NOT ended OR n % 3 = 0
), inserted AS (
    INSERT INTO postroom.saga (name, key, version, state, step, revision, data, input, correlation_id, owner, waits_since, waits_hour, deadline, started_at, ended_at)
    SELECT name, key, 1, state, step, 3, convert_to(jsonb_build_object('order', key, 'customer', 'customer-' || n % 50000, 'note', repeat('x', 300))::text, 'UTF8'),
           sha256(convert_to(key, 'UTF8')), 'process-' || n, gen_random_uuid(), waits_since, date_bin('1 hour', waits_since, 'epoch'),
           CASE WHEN NOT ended THEN waits_since + interval '55 minutes' END, started_at, CASE WHEN ended THEN waits_since END
    FROM instances
)
INSERT INTO postroom.saga_step (name, key, revision, step, direction, what, type, event_id, next_step, next_type, command_id, at)
SELECT name, key, 1 + h.n, 'payment', 'do', h.what, h.type, h.type || ':' || name || ':' || key, h.next_step, h.next_type, md5(name || ' ' || key || h.next_step) || ':do', waits_since
FROM instances
CROSS JOIN (VALUES ('begun', NULL, 'payment', 'payment.charge', 0), ('done', 'payment.charged', 'stock', 'stock.reserve', 1)) AS h (what, type, next_step, next_type, n)
