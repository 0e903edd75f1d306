-- Counts the events of the producers' log that relays still have to publish.
--
-- Locks: none. Reads the whole log. Called by: drained.
SELECT (SELECT count(*) FROM postroom.outbox AS o, postroom.relay AS r WHERE o.seq > r.high OR r.pending @> o.seq) AS "unpublished events",
       (SELECT count(*) FROM postroom.held) AS "outgoing events that are held";
