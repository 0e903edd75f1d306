-- The story of one order, from the tables of all services: of those that were short
-- of stock the one that took longest, or else any that took longest.
--
-- Locks   none.
-- Index   none; it reads everything.
-- Called  by deployment.judge, in the auditor's database.
WITH o AS (
    SELECT *
    FROM placed
    ORDER BY reason = 'out of stock' DESC, ended_at - placed_at DESC NULLS LAST
    LIMIT 1
), step (at, service, tbl, what) AS (
    SELECT placed_at, 'order', 'orders', format('%s is placed: %s of %s for %s', id, quantity, sku, round(amount / 100.0, 2)) FROM o
    UNION ALL
    SELECT ended_at, 'order', 'orders', format('%s is %s%s', id, state, nullif(': ' || reason, ': ')) FROM o WHERE ended_at IS NOT NULL
    UNION ALL
    SELECT m.at, 'payment', 'movement', format('%s of %s', m.kind, round(m.amount / 100.0, 2)) FROM money m JOIN o ON o.id = m.order_id
    UNION ALL
    SELECT g.at, 'stock', 'movement', format('%s of %s %s', abs(g.quantity), g.sku, CASE WHEN g.quantity > 0 THEN 'reserved' ELSE 'released' END)
    FROM goods g JOIN o ON o.id = g.order_id
    UNION ALL
    SELECT a.at, 'stock', 'supplier_request', 'the supplier is asked' FROM asked a JOIN o ON o.id = a.order_id
    UNION ALL
    SELECT e.at, e.service, 'outbox', e.type || coalesce(', because of ' || c.type, '')
    FROM event e JOIN o ON o.id = e.key LEFT JOIN event c ON c.event_id = e.causation_id
    UNION ALL
    SELECT d.at, d.service, 'inbox', format('%s begins with %s', d.handler, e.type)
    FROM decided d JOIN event e ON d.dedupe_key = '/' || e.service || ' ' || e.event_id JOIN o ON o.id = e.key
)
SELECT extract(epoch FROM step.at - o.placed_at)::float8 AS seconds, service, tbl, what
FROM step, o
ORDER BY step.at, tbl;
