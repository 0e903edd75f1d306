-- The proof: a row for each check, with the kind of its violations (lost, ghost or double) and
-- their number. Postroom promises that all these numbers are zero.
--
-- $1 how many orders the clients know to be committed
--
-- A customer with a declined card has only rolled-back orders. So any total of such a customer
-- is a ghost.
--
-- Locks   none.
-- Index   none; it reads everything.
-- Called  by deployment.prove, after gather has stored the evidence.
WITH charged AS (
    SELECT o.id, count(c.id) AS charges, count(*) FILTER (WHERE c.amount = o.amount) AS right_charges
    FROM shop_order o
    LEFT JOIN charge c ON c.order_id = o.id
    GROUP BY o.id
), placed AS (
    SELECT customer, count(*) AS orders, sum(amount) AS amount
    FROM shop_order
    GROUP BY customer
), totals AS (
    SELECT p.customer,
           p.orders, coalesce(t.orders, 0) AS counted_orders,
           p.amount, coalesce(t.amount, 0) AS counted_amount
    FROM placed p
    LEFT JOIN customer_total t USING (customer)
), logged AS ( -- each event of the log, and whether the stream has it
    SELECT type, key, event_id,
           EXISTS (SELECT FROM stream_message m WHERE m.event_id = e.event_id) AS streamed
    FROM postroom.outbox e
), announced AS ( -- for each order, how many events say that it was charged
    SELECT key, count(*) AS events, count(*) FILTER (WHERE streamed) AS streamed
    FROM logged
    WHERE type = 'order.charged'
    GROUP BY key
)
SELECT 1 AS n, 'lost' AS violation, 'every order that a client committed is there' AS name,
       greatest($1::bigint - (SELECT count(*) FROM shop_order), 0) AS violations
UNION ALL
SELECT 2, 'lost', 'every order has a charge of its amount',
       (SELECT count(*) FROM charged WHERE right_charges = 0)
UNION ALL
SELECT 3, 'double', 'no order has a second charge',
       (SELECT coalesce(sum(charges - 1), 0) FROM charged WHERE charges > 1)
UNION ALL
SELECT 4, 'lost', 'every order is in its customer''s total',
       (SELECT coalesce(sum(greatest(orders - counted_orders, 1)), 0) FROM totals
        WHERE counted_orders < orders OR counted_amount < amount)
UNION ALL
SELECT 5, 'double', 'no order is in its customer''s total twice',
       (SELECT coalesce(sum(greatest(counted_orders - orders, 1)), 0) FROM totals
        WHERE counted_orders > orders OR counted_amount > amount)
UNION ALL
SELECT 6, 'lost', 'every order''s event is in the stream',
       (SELECT count(*) FROM shop_order o
        WHERE NOT EXISTS (SELECT FROM logged e WHERE e.type = 'order.placed' AND e.key = o.id AND e.streamed))
UNION ALL
SELECT 7, 'ghost', 'no rolled-back order is there',
       (SELECT count(*) FROM rolled_back r JOIN shop_order o ON o.id = r.order_id)
UNION ALL
SELECT 8, 'ghost', 'no rolled-back order has an event in the log',
       (SELECT count(*) FROM rolled_back r JOIN postroom.outbox e ON e.key = r.order_id)
UNION ALL
SELECT 9, 'ghost', 'no rolled-back order has a message in the stream',
       (SELECT count(*) FROM rolled_back r JOIN stream_message m ON m.key = r.order_id)
UNION ALL
SELECT 10, 'ghost', 'no rolled-back or unknown order has a charge',
       (SELECT count(*) FROM charge c WHERE NOT EXISTS (SELECT FROM shop_order o WHERE o.id = c.order_id))
UNION ALL
SELECT 11, 'ghost', 'no rolled-back order is in a total',
       (SELECT coalesce(sum(t.orders), 0) FROM customer_total t
        WHERE NOT EXISTS (SELECT FROM placed p WHERE p.customer = t.customer))
UNION ALL
SELECT 12, 'lost', 'every charge is announced in the stream',
       (SELECT count(*) FROM charged c LEFT JOIN announced a ON a.key = c.id
        WHERE c.charges > 0 AND coalesce(a.streamed, 0) = 0)
UNION ALL
SELECT 13, 'double', 'no charge is announced by a second event',
       (SELECT coalesce(sum(events - 1), 0) FROM announced WHERE events > 1)
UNION ALL
SELECT 14, 'ghost', 'no charge is announced that was not made',
       (SELECT count(*) FROM announced a WHERE NOT EXISTS (SELECT FROM charge c WHERE c.order_id = a.key))
UNION ALL
SELECT 15, 'ghost', 'no message of the stream is missing from the log',
       (SELECT count(*) FROM stream_message m
        WHERE NOT EXISTS (SELECT FROM logged e WHERE e.event_id = m.event_id))
ORDER BY n;
