-- The progress of a service: how many events are not published, how many are held and not dead, and
-- how many are dead. Also how many events the service wrote, by type, and how many it decided, by
-- handler.
--
-- Locks   none.
-- Index   none; the tables are small.
-- Called  by books.state, in each service's database.
SELECT (SELECT count(*) FROM postroom.outbox o, postroom.relay r WHERE o.seq > r.high OR o.seq <@ r.pending) AS unpublished,
       (SELECT count(*) FROM postroom.held WHERE dead_at IS NULL)                                            AS owed,
       (SELECT count(*) FROM postroom.held WHERE dead_at IS NOT NULL)                                        AS dead,
       (SELECT coalesce(jsonb_object_agg(type, n), '{}')
        FROM (SELECT type, count(*) AS n FROM postroom.outbox GROUP BY type) t)                              AS wrote,
       (SELECT coalesce(jsonb_object_agg(handler, n), '{}')
        FROM (SELECT handler, count(*) AS n FROM postroom.inbox GROUP BY handler) t)                         AS decided;
