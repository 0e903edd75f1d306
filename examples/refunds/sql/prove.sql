-- The proof: a row for each check, with the kind of its violations (lost, ghost, double or wrong)
-- and their number.
--
-- Locks   none.
-- Index   none; it reads everything.
-- Called  by prove, after gather has stored the evidence.
WITH movement AS (
    SELECT id, 'charge' AS kind, id AS charge_id, merchant, amount, provider_ref, request_key AS key FROM charge
    UNION ALL
    SELECT id, 'refund', charge_id, merchant, amount, provider_ref, request_key FROM refund
), asked AS ( -- the operations for which clients got the status 201
    SELECT DISTINCT merchant, kind, key FROM told WHERE status = 201
), done AS (
    SELECT a.merchant, a.kind, a.key, count(m.id) AS rows
    FROM asked a
    LEFT JOIN movement m USING (merchant, kind, key)
    GROUP BY a.merchant, a.kind, a.key
), entered AS (
    SELECT m.id, count(l.id) AS entries,
           count(l.id) FILTER (WHERE (l.debit, l.credit, l.amount) = (
               CASE m.kind WHEN 'charge' THEN 'provider' ELSE m.merchant END,
               CASE m.kind WHEN 'charge' THEN m.merchant ELSE 'provider' END, m.amount)) AS right_entries
    FROM movement m
    LEFT JOIN ledger l ON l.movement_id = m.id
    GROUP BY m.id
), event AS (
    SELECT event_id, type, key, convert_from(data, 'UTF8')::jsonb AS data FROM postroom.outbox
), announced AS (
    SELECT m.id, count(e.event_id) AS events,
           count(e.event_id) FILTER (WHERE e.type = CASE m.kind WHEN 'charge' THEN 'payment.charged' ELSE 'payment.refunded' END) AS right_events
    FROM movement m
    LEFT JOIN event e ON e.data ->> 'id' = m.id
    GROUP BY m.id
)
SELECT 1 AS n, 'lost' AS violation, 'every key that was answered with 201 has its charge or refund' AS name,
       (SELECT count(*) FROM done WHERE rows = 0) AS violations
UNION ALL
SELECT 2, 'double', 'no key has two',
       (SELECT coalesce(sum(rows - 1), 0) FROM done WHERE rows > 1)
UNION ALL
SELECT 3, 'ghost', 'nothing was charged or refunded that was not answered with 201',
       (SELECT count(*) FROM movement m WHERE NOT EXISTS (
            SELECT FROM asked a WHERE (a.merchant, a.kind, a.key) = (m.merchant, m.kind, m.key)))
UNION ALL
SELECT 4, 'wrong', 'no key was answered in two ways',
       (SELECT count(*) FROM (SELECT FROM told GROUP BY merchant, kind, key HAVING count(DISTINCT (status, body)) > 1) t)
UNION ALL
SELECT 5, 'wrong', 'every answer says what is in the tables',
       (SELECT count(*) FROM told t WHERE status = 201 AND NOT EXISTS (
            SELECT FROM movement m
            WHERE (m.merchant, m.kind, m.key) = (t.merchant, t.kind, t.key)
              AND (m.id, m.charge_id, m.amount) = (t.body::jsonb ->> 'id', t.body::jsonb ->> 'charge', (t.body::jsonb ->> 'amount')::bigint)))
UNION ALL
SELECT 6, 'lost', 'every charge and refund has its entry in the ledger',
       (SELECT count(*) FROM entered WHERE right_entries = 0)
UNION ALL
SELECT 7, 'double', 'none has two',
       (SELECT coalesce(sum(entries - 1), 0) FROM entered WHERE entries > 1)
UNION ALL
SELECT 8, 'ghost', 'no entry is of nothing',
       (SELECT count(*) FROM ledger l WHERE NOT EXISTS (SELECT FROM movement m WHERE m.id = l.movement_id))
UNION ALL
SELECT 9, 'lost', 'every charge and refund is announced by its event',
       (SELECT count(*) FROM announced WHERE right_events = 0)
UNION ALL
SELECT 10, 'double', 'none is announced twice',
       (SELECT coalesce(sum(events - 1), 0) FROM announced WHERE events > 1)
UNION ALL
SELECT 11, 'ghost', 'no event is of nothing',
       (SELECT count(*) FROM event e WHERE NOT EXISTS (SELECT FROM movement m WHERE m.id = e.data ->> 'id' AND m.charge_id = e.key))
UNION ALL
SELECT 12, 'lost', 'every charge and refund was made by the provider',
       (SELECT count(*) FROM movement m WHERE NOT EXISTS (
            SELECT FROM provided p WHERE (p.ref, p.kind, p.amount) = (m.provider_ref, m.kind, m.amount) AND p.effects > 0))
UNION ALL
SELECT 13, 'double', 'the provider made none twice',
       (SELECT coalesce(sum(effects - 1), 0) FROM provided WHERE effects > 1)
UNION ALL
SELECT 14, 'ghost', 'the provider made none that is not in the tables',
       (SELECT count(*) FROM provided p WHERE effects > 0 AND NOT EXISTS (SELECT FROM movement m WHERE m.provider_ref = p.ref))
UNION ALL
SELECT 15, 'wrong', 'no charge is refunded beyond its amount',
       (SELECT count(*) FROM charge c WHERE amount < (SELECT coalesce(sum(amount), 0) FROM refund r WHERE r.charge_id = c.id))
UNION ALL
SELECT 16, 'wrong', 'the ledger balances: each merchant has charges less refunds',
       (SELECT count(*)
        FROM (SELECT merchant, sum(CASE kind WHEN 'charge' THEN amount ELSE -amount END) AS due FROM movement GROUP BY merchant) d
        WHERE due <> (SELECT coalesce(sum(CASE WHEN credit = d.merchant THEN amount ELSE -amount END), 0)
                      FROM ledger WHERE d.merchant IN (debit, credit)))
UNION ALL
SELECT 17, 'wrong', 'the provider''s books come to the same sum',
       (SELECT count(*)
        FROM (SELECT coalesce(sum(CASE kind WHEN 'charge' THEN effects * amount ELSE -effects * amount END), 0) AS sum FROM provided) p
        WHERE sum <> (SELECT coalesce(sum(CASE WHEN debit = 'provider' THEN amount ELSE -amount END), 0) FROM ledger))
UNION ALL
SELECT 18, 'lost', 'nothing is begun and not settled',
       (SELECT count(*) FROM reservation) + (SELECT count(*) FROM postroom.idempotency WHERE state = 'pending')
UNION ALL
SELECT 19, 'lost', 'every event is published',
       (SELECT count(*) FROM event e WHERE NOT EXISTS (SELECT FROM published p WHERE p.event_id = e.event_id))
UNION ALL
SELECT 20, 'ghost', 'nothing else is',
       (SELECT count(*) FROM published p WHERE NOT EXISTS (SELECT FROM event e WHERE e.event_id = p.event_id))
ORDER BY n;
