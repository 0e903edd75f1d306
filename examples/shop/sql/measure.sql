-- Figures about the rows that the run wrote, and how long an event took.
--
-- The latency is the time in seconds, by the database's clock, from the insert of the event to the
-- insert of the charge. Both inserts are just before the commits of their transactions. So the
-- latency includes the commit of the order, but not the commit of the charge. Orders whose
-- transaction stayed open on purpose have no part in the latency.
--
-- Locks   none.
-- Index   none; it reads everything.
-- Called  by deployment.judge.
SELECT (SELECT count(*) FROM shop_order)                                AS orders,
       (SELECT count(*) FROM charge)                                    AS charged,
       (SELECT coalesce(sum(orders), 0)::bigint FROM customer_total)    AS counted,
       (SELECT count(*) FROM shop_order WHERE held)                     AS held,
       coalesce(l.seconds[1], 0) AS p50,
       coalesce(l.seconds[2], 0) AS p99,
       current_setting('server_version')                                AS version,
       current_setting('fsync') = 'on' AND current_setting('synchronous_commit') <> 'off' AS durable
FROM (
    SELECT percentile_cont(ARRAY[0.5, 0.99])
               WITHIN GROUP (ORDER BY extract(epoch FROM c.charged_at - e.created_at)::float8) AS seconds
    FROM charge c
    JOIN shop_order o ON o.id = c.order_id AND NOT o.held
    JOIN postroom.outbox e ON e.key = c.order_id AND e.type = 'order.placed'
) l;
