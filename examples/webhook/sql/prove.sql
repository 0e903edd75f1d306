-- The proof: a row for each check, with the kind of its violations (lost, ghost, double or wrong)
-- and their number.
--
-- $1 the handler   $2 the source of its events
--
-- Locks   none.
-- Index   none; it reads everything.
-- Called  by prove, after provider.store has stored the evidence.
WITH effects AS (
    SELECT s.webhook_id, count(m.id) AS effects
    FROM sent s
    LEFT JOIN movement m ON m.webhook_id = s.webhook_id
    GROUP BY s.webhook_id
), taken AS (
    SELECT DISTINCT webhook_id FROM answer WHERE kind = 'genuine' AND status = 200
), changed AS (
    SELECT DISTINCT webhook_id FROM answer WHERE kind = 'changed' AND status = 200
), summed AS ( -- the sums of the webhooks, from the provider's records
    SELECT payment,
           coalesce(sum(amount) FILTER (WHERE type = 'payment.authorized'), 0) AS authorized,
           coalesce(sum(amount) FILTER (WHERE type = 'payment.captured'), 0)   AS captured,
           coalesce(sum(amount) FILTER (WHERE type = 'payment.refunded'), 0)   AS refunded
    FROM sent
    GROUP BY payment
), books AS ( -- the state of a payment according to these sums, computed without the service's code
    SELECT *,
           CASE WHEN authorized < captured OR captured < refunded THEN 'incomplete' -- only in an interrupted run
                WHEN captured = 0                                 THEN 'authorized'
                ELSE CASE WHEN CASE refunded WHEN 0 THEN authorized - captured ELSE captured - refunded END > 0 THEN 'partly ' ELSE '' END
                  || CASE refunded WHEN 0 THEN 'captured' ELSE 'refunded' END
           END AS state
    FROM summed
), conflicts AS (
    SELECT event_id FROM postroom.held
    WHERE handler = $1 AND source = $2 AND class = 'conflict' AND dead_at IS NOT NULL
)
SELECT 1 AS n, 'lost' AS violation, 'every webhook was answered with 200 in the end' AS name,
       (SELECT count(*) FROM sent WHERE webhook_id NOT IN (SELECT webhook_id FROM taken)) AS violations
UNION ALL
SELECT 2, 'lost', 'what was answered with 200 is in the inbox',
       (SELECT count(*) FROM taken t WHERE NOT EXISTS (
            SELECT FROM postroom.inbox i WHERE i.handler = $1 AND i.dedupe_key = $2 || ' ' || t.webhook_id))
UNION ALL
SELECT 3, 'lost', 'every webhook has taken effect',
       (SELECT count(*) FROM effects WHERE effects = 0)
UNION ALL
SELECT 4, 'double', 'no webhook has taken effect twice',
       (SELECT coalesce(sum(effects - 1), 0) FROM effects WHERE effects > 1)
UNION ALL
SELECT 5, 'ghost', 'nothing has taken effect that was not sent like that',
       (SELECT count(*) FROM movement m WHERE NOT EXISTS (
            SELECT FROM sent s
            WHERE (s.webhook_id, s.payment, s.type, s.amount) = (m.webhook_id, m.payment, m.type, m.amount)))
UNION ALL
SELECT 6, 'ghost', 'what is forged was answered with 401',
       (SELECT count(*) FROM answer WHERE kind = 'forged' AND status NOT IN (0, 401))
UNION ALL
SELECT 7, 'ghost', 'nothing forged is stored',
       (SELECT count(*) FROM postroom.inbox i JOIN answer a ON a.kind = 'forged' AND a.status = 0 AND strpos(i.dedupe_key, a.webhook_id) > 0)
UNION ALL
SELECT 8, 'wrong', 'every payment adds up',
       (SELECT count(*) FROM summed s FULL JOIN payment p ON p.id = s.payment
        WHERE (s.authorized, s.captured, s.refunded) IS DISTINCT FROM (p.authorized::numeric, p.captured::numeric, p.refunded::numeric))
UNION ALL
SELECT 9, 'wrong', 'every payment is where the provider''s books say',
       (SELECT count(*) FROM books b FULL JOIN payment p ON p.id = b.payment
        WHERE b.state IS DISTINCT FROM p.state)
UNION ALL
SELECT 10, 'lost', 'every changed body is held as a conflict',
       (SELECT count(*) FROM changed c WHERE NOT EXISTS (SELECT FROM conflicts k WHERE k.event_id = c.webhook_id))
UNION ALL
SELECT 11, 'ghost', 'no conflict is held that no sender caused',
       (SELECT count(*) FROM conflicts k WHERE NOT EXISTS (SELECT FROM answer a WHERE a.kind = 'changed' AND a.webhook_id = k.event_id))
UNION ALL
SELECT 12, 'lost', 'nothing is owed any more, and nothing but conflicts is dead',
       (SELECT count(*) FROM postroom.held
        WHERE handler = $1 AND (dead_at IS NULL OR class IS DISTINCT FROM 'conflict'))
ORDER BY n;
