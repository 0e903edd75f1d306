-- The proof: a row for each check, with the kind of its violations (lost, ghost, double or wrong)
-- and their number.
--
-- $1 how many orders the customers placed; 0 if only the order service knows that number
--
-- Locks   none.
-- Index   none; it reads everything.
-- Called  by prove, in the auditor's database.
WITH ends AS (
    SELECT p.id, p.state, count(e.event_id) AS events, count(*) FILTER (WHERE e.type = 'order.' || p.state) AS right_events
    FROM placed p
    LEFT JOIN event e ON e.key = p.id AND e.type IN ('order.confirmed', 'order.cancelled')
    GROUP BY p.id, p.state
), paid AS (
    SELECT p.id, p.amount, p.state,
           coalesce(sum(m.amount) FILTER (WHERE m.kind = 'charge'), 0) - coalesce(sum(m.amount) FILTER (WHERE m.kind = 'refund'), 0) AS paid,
           count(*) FILTER (WHERE m.kind = 'charge') AS charges, count(*) FILTER (WHERE m.kind = 'refund') AS refunds
    FROM placed p
    LEFT JOIN money m ON m.order_id = p.id
    GROUP BY p.id
), got AS (
    SELECT p.id, p.quantity, p.state,
           coalesce(sum(g.quantity), 0) AS got, count(*) FILTER (WHERE g.sku <> p.sku) AS others,
           count(*) FILTER (WHERE g.quantity > 0) AS reserved, count(*) FILTER (WHERE g.quantity < 0) AS released
    FROM placed p
    LEFT JOIN goods g ON g.order_id = p.id
    GROUP BY p.id
), spent AS (
    SELECT a.customer, a.before - a.credit AS spent, coalesce(sum(p.amount) FILTER (WHERE p.state = 'confirmed'), 0) AS confirmed
    FROM account a
    LEFT JOIN placed p ON p.customer = a.customer
    GROUP BY a.customer
), sold AS (
    SELECT i.sku, i.before - i.available AS sold, coalesce(sum(p.quantity) FILTER (WHERE p.state = 'confirmed'), 0) AS confirmed
    FROM item i
    LEFT JOIN placed p ON p.sku = i.sku
    GROUP BY i.sku
), due AS ( -- each event with each handler that reads it
    SELECT s.handler, '/' || e.service || ' ' || e.event_id AS dedupe_key
    FROM event e
    JOIN subscribed s USING (type)
)
SELECT 1 AS n, 'lost' AS violation, 'every order that was placed is there' AS name,
       greatest($1::bigint - (SELECT count(*) FROM placed), 0) AS violations
UNION ALL
SELECT 2, 'lost', 'every order ended confirmed or cancelled',
       (SELECT count(*) FROM placed WHERE state NOT IN ('confirmed', 'cancelled'))
UNION ALL
SELECT 3, 'double', 'no order is announced as both, or twice',
       (SELECT coalesce(sum(events - 1), 0) FROM ends WHERE events > 1)
UNION ALL
SELECT 4, 'lost', 'every order is announced as what it is',
       (SELECT count(*) FROM ends WHERE right_events = 0)
UNION ALL
SELECT 5, 'double', 'no order was charged or refunded twice',
       (SELECT coalesce(sum(greatest(charges - 1, 0) + greatest(refunds - 1, 0)), 0) FROM paid)
UNION ALL
SELECT 6, 'wrong', 'every confirmed order is paid, and no other',
       (SELECT count(*) FROM paid WHERE paid <> CASE WHEN state = 'confirmed' THEN amount ELSE 0 END)
UNION ALL
SELECT 7, 'ghost', 'no money moved without an order',
       (SELECT count(*) FROM money m WHERE NOT EXISTS (SELECT FROM placed p WHERE p.id = m.order_id))
UNION ALL
SELECT 8, 'wrong', 'every customer spent what the confirmed orders cost',
       (SELECT count(*) FROM spent WHERE spent <> confirmed)
UNION ALL
SELECT 9, 'wrong', 'charged less refunded is the sum of the confirmed orders',
       (SELECT count(*) FROM (SELECT coalesce(sum(CASE kind WHEN 'charge' THEN amount ELSE -amount END), 0) AS kept FROM money) m
        WHERE kept <> (SELECT coalesce(sum(amount), 0) FROM placed WHERE state = 'confirmed'))
UNION ALL
SELECT 10, 'double', 'nothing was reserved or released twice',
       (SELECT coalesce(sum(greatest(reserved - 1, 0) + greatest(released - 1, 0)), 0) FROM got)
UNION ALL
SELECT 11, 'wrong', 'every confirmed order has its goods, and no other',
       (SELECT count(*) FROM got WHERE others > 0 OR got <> CASE WHEN state = 'confirmed' THEN quantity ELSE 0 END)
UNION ALL
SELECT 12, 'ghost', 'no goods were reserved without an order',
       (SELECT count(*) FROM goods g WHERE NOT EXISTS (SELECT FROM placed p WHERE p.id = g.order_id))
UNION ALL
SELECT 13, 'wrong', 'of every item as much is gone as the confirmed orders have',
       (SELECT count(*) FROM sold WHERE sold <> confirmed)
UNION ALL
SELECT 14, 'wrong', 'of no item there was ever less than none',
       (SELECT count(*) FROM item WHERE lowest < 0 OR available < 0)
UNION ALL
SELECT 15, 'lost', 'every event is published',
       (SELECT count(*) FROM event e WHERE NOT EXISTS (SELECT FROM message m WHERE m.event_id = e.event_id))
UNION ALL
SELECT 16, 'ghost', 'nothing is published that no service wrote',
       (SELECT count(*) FROM message m WHERE NOT EXISTS (SELECT FROM event e WHERE e.event_id = m.event_id AND e.type = m.type))
UNION ALL
SELECT 17, 'lost', 'every event was decided by each of its handlers',
       (SELECT count(*) FROM due WHERE NOT EXISTS (
            SELECT FROM decided d WHERE d.handler = due.handler AND d.dedupe_key = due.dedupe_key))
UNION ALL
SELECT 18, 'ghost', 'nothing was decided that no service wrote',
       (SELECT count(*) FROM decided d WHERE NOT EXISTS (
            SELECT FROM due WHERE due.handler = d.handler AND due.dedupe_key = d.dedupe_key))
UNION ALL
SELECT 19, 'lost', 'nothing is owed any more, and nothing is dead',
       (SELECT count(*) FROM held)
UNION ALL
SELECT 20, 'wrong', 'every event tells its saga and its cause',
       (SELECT count(*) FROM event e
        WHERE NOT (e.causation_id IS NULL AND e.type IN ('payment.charge', 'order.checkout.deadline')) -- the first events that a saga writes
          AND NOT EXISTS (
            SELECT FROM event cause
            WHERE cause.event_id = e.causation_id AND cause.key = e.key AND cause.correlation_id = e.correlation_id))
UNION ALL
SELECT 21, 'wrong', 'every saga is done if its order is confirmed, and else undone',
       (SELECT count(*) FROM placed p FULL JOIN process s ON s.order_id = p.id
        WHERE s.state IS DISTINCT FROM CASE p.state WHEN 'confirmed' THEN 'done' WHEN 'cancelled' THEN 'undone' END)
UNION ALL
SELECT 22, 'wrong', 'what was done was undone in reverse order',
       (SELECT count(*) FROM event r JOIN event g USING (key)
        WHERE r.type = 'payment.refund' AND g.type = 'stock.release' AND NOT EXISTS (
            SELECT FROM event e WHERE e.key = r.key AND e.type = 'stock.released' AND e.at <= r.at))
ORDER BY n;
