-- Figures about the rows that the run wrote to the services' tables.
--
-- Locks   none.
-- Index   none; it reads everything.
-- Called  by deployment.judge, in the auditor's database.
SELECT count(*)                                                                  AS orders,
       count(*) FILTER (WHERE state = 'confirmed')                               AS confirmed,
       count(*) FILTER (WHERE state = 'cancelled')                               AS cancelled,
       count(*) FILTER (WHERE reason = 'declined')                               AS declined,
       count(*) FILTER (WHERE reason = 'out of stock')                           AS short,
       count(*) FILTER (WHERE reason = 'out of time')                            AS expired,
       (SELECT count(*) FROM process WHERE state = 'undone')                     AS undone,
       (SELECT count(*) FROM event)                                              AS events,
       (SELECT count(*) FROM decided WHERE handler LIKE 'checkout.%')            AS decided, -- by the handlers with a durable consumer
       (SELECT coalesce(sum(amount), 0)::bigint FROM money WHERE kind = 'charge') AS charged,
       (SELECT coalesce(sum(amount), 0)::bigint FROM money WHERE kind = 'refund') AS refunded
FROM placed;
