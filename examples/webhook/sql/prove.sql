-- The proof: a row for each check, with what a violation of it is (lost, ghost,
-- double or wrong) and how many there are.
--
-- $1 the handler   $2 the source of its events
--
-- Locks   none.
-- Index   none; it reads everything.
-- Called  by prove, on evidence that gather has completed.
WITH effects AS (
    SELECT s.webhook_id, s.answered, count(m.id) AS effects
    FROM sent s
    LEFT JOIN movement m ON m.webhook_id = s.webhook_id
    GROUP BY s.webhook_id, s.answered
), summed AS ( -- what the webhooks add up to, by the provider's memory of each
    SELECT payment,
           coalesce(sum(amount) FILTER (WHERE type = 'payment.authorized'), 0) AS authorized,
           coalesce(sum(amount) FILTER (WHERE type = 'payment.captured'), 0)   AS captured,
           coalesce(sum(amount) FILTER (WHERE type = 'payment.refunded'), 0)   AS refunded
    FROM sent
    GROUP BY payment
), conflicts AS (
    SELECT event_id FROM postroom.held
    WHERE handler = $1 AND source = $2 AND class = 'conflict' AND dead_at IS NOT NULL
)
SELECT 1 AS n, 'lost' AS violation, 'every webhook was answered with 200 in the end' AS name,
       (SELECT count(*) FROM sent WHERE answered = 0) AS violations
UNION ALL
SELECT 2, 'lost', 'what was answered with 200 is in the ledger',
       (SELECT count(*) FROM sent s WHERE answered > 0 AND NOT EXISTS (
            SELECT FROM postroom.inbox i WHERE i.handler = $1 AND i.dedupe_key = $2 || ' ' || s.webhook_id))
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
SELECT 6, 'ghost', 'what is forged, stale or tampered with was answered with 401',
       (SELECT count(*) FROM bad WHERE answer <> 401)
UNION ALL
SELECT 7, 'ghost', 'nothing forged or stale is stored',
       (SELECT count(*) FROM postroom.inbox i JOIN bad b ON b.kind <> 'tampered' AND strpos(i.dedupe_key, b.webhook_id) > 0)
UNION ALL
SELECT 8, 'wrong', 'every payment adds up',
       (SELECT count(*) FROM summed s FULL JOIN payment p ON p.id = s.payment
        WHERE (s.authorized, s.captured, s.refunded) IS DISTINCT FROM (p.authorized::numeric, p.captured::numeric, p.refunded::numeric))
UNION ALL
SELECT 9, 'wrong', 'every payment is where the provider''s books say',
       (SELECT count(*) FROM expected e FULL JOIN payment p ON p.id = e.payment
        WHERE (e.authorized, e.captured, e.refunded, e.state) IS DISTINCT FROM (p.authorized, p.captured, p.refunded, p.state))
UNION ALL
SELECT 10, 'lost', 'every changed body is held as a conflict',
       (SELECT count(*) FROM changed c WHERE NOT EXISTS (SELECT FROM conflicts k WHERE k.event_id = c.webhook_id))
UNION ALL
SELECT 11, 'ghost', 'no conflict is held of which nothing is known',
       (SELECT count(*) FROM conflicts k WHERE NOT EXISTS (SELECT FROM changed c WHERE c.webhook_id = k.event_id))
UNION ALL
SELECT 12, 'lost', 'nothing is owed any more, and nothing but conflicts is dead',
       (SELECT count(*) FROM postroom.held
        WHERE handler = $1 AND (dead_at IS NULL OR class IS DISTINCT FROM 'conflict'))
ORDER BY n;
