-- The proof: a row for each check, with the kind of its violations (lost, ghost, double or wrong)
-- and their number. $1 is how many orders the operator gave up.
--
-- Locks   none.
-- Index   none; it reads everything.
-- Called  by night.prove, when all parts have stopped.
WITH given_up AS (
    SELECT key AS id FROM postroom.archive WHERE handler = 'billing.charge'
), charged AS (
    SELECT o.id, count(c.id) AS charges,
           count(*) FILTER (WHERE c.cents = translate(o.amount, '.,', '')::bigint * (SELECT percent FROM rate r WHERE r.currency = o.currency) / 100) AS right_charges
    FROM shop_order o
    LEFT JOIN charge c ON c.order_id = o.id
    GROUP BY o.id
)
SELECT 1 AS n, 'wrong' AS violation, 'every order that was not given up is charged once, with its amount' AS name,
       count(*) FILTER (WHERE charges <> 1 OR right_charges <> 1) AS violations
FROM charged
WHERE NOT EXISTS (SELECT FROM given_up g WHERE g.id = charged.id)
UNION ALL
SELECT 2, 'ghost', 'what was given up is not charged', count(*) FILTER (WHERE charges <> 0) FROM charged WHERE id IN (SELECT id FROM given_up)
UNION ALL
SELECT 3, 'wrong', 'as many were given up as the operator said', abs((SELECT count(*) FROM given_up) - $1::bigint)
UNION ALL
SELECT 4, 'wrong', 'each charge is told of by one event', abs((SELECT count(*) FROM charge) - (SELECT count(*) FROM postroom.outbox WHERE type = 'order.charged'))
       + (SELECT count(*) FROM (SELECT key FROM postroom.outbox WHERE type = 'order.charged' GROUP BY key HAVING count(*) > 1) twice)
UNION ALL
SELECT 5, 'wrong', 'each customer was thanked once: a replay runs one handler', count(*)
FROM (SELECT o.id FROM shop_order o LEFT JOIN thanks t ON t.order_id = o.id GROUP BY o.id HAVING count(t.id) <> 1) not_once
UNION ALL
SELECT 6, 'lost', 'nothing is dead, nothing is owed', count(*) FROM postroom.held
UNION ALL
SELECT 7, 'lost', 'what was edited is kept as it was', count(*)
FROM (SELECT 1 FROM postroom.audit a WHERE action = 'edit'
      AND NOT EXISTS (SELECT FROM postroom.revision r WHERE r.event_id = a.event_id AND r.revision = 0)) lost
UNION ALL
SELECT 8, 'lost', 'the audit has every event of every replay', count(*)
FROM postroom.replay j
WHERE NOT EXISTS (SELECT FROM postroom.audit a WHERE a.replay = j.id AND a.action = 'replay' AND a.events = j.items)
   OR j.items <> (SELECT count(*) FROM postroom.replay_event i WHERE i.replay = j.id AND i.outcome IS NOT NULL)
ORDER BY n;
