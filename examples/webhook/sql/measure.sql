-- Figures about the rows that the run wrote. A webhook is out of order if an earlier webhook of
-- the same payment took effect after it.
--
-- $1 the handler
--
-- Locks   none.
-- Index   none; it reads everything.
-- Called  by deployment.judge.
WITH applied AS (
    SELECT s.payment, s.n, m.id
    FROM movement m
    JOIN sent s ON s.webhook_id = m.webhook_id
)
SELECT (SELECT count(DISTINCT payment) FROM sent)                                                 AS payments,
       (SELECT count(*) FROM sent)                                                                AS webhooks,
       (SELECT count(*) FROM movement)                                                            AS applied,
       (SELECT count(*) - count(DISTINCT webhook_id) FROM answer WHERE kind = 'genuine' AND status = 200) AS duplicates,
       (SELECT count(*) FROM postroom.held WHERE handler = $1 AND class = 'conflict')             AS conflicts,
       (SELECT count(*) FROM answer WHERE kind = 'forged' AND status = 401)                       AS refused,
       (SELECT count(*) FROM applied a WHERE EXISTS (
            SELECT FROM applied b WHERE b.payment = a.payment AND b.n < a.n AND b.id > a.id))     AS out_of_order,
       (SELECT coalesce(sum(captured - refunded), 0)::bigint FROM payment)                        AS kept,
       (SELECT count(*) FROM answer WHERE status = 0)                                             AS begun;
