-- How many orders there are, in all and in each state.
--
-- Locks   none.
-- Index   none; it reads everything.
-- Called  by books.state, in the order service's database.
SELECT count(*)                                                        AS placed,
       count(*) FILTER (WHERE state = 'pending')                       AS pending,
       count(*) FILTER (WHERE state = 'confirmed')                     AS confirmed,
       count(*) FILTER (WHERE state = 'cancelled')                     AS cancelled
FROM orders;
