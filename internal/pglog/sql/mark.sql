-- Mark what is published now and where streams end, as the leader of epoch $1. Marks
-- older than an hour go: a broker that writes to its disk every two minutes forgets
-- less.
--
-- Locks   the new row, and the deleted ones.
-- Index   relay_mark_pkey (id): marks are few.
-- Called  by Term.Record, after record.sql in its transaction.
WITH leader AS (
    SELECT streams, high, floor, snap, pending FROM postroom.relay WHERE epoch = $1
), old AS (
    DELETE FROM postroom.relay_mark WHERE at < clock_timestamp() - interval '1 hour' AND EXISTS (SELECT FROM leader)
)
INSERT INTO postroom.relay_mark (streams, high, floor, snap, pending)
SELECT streams, high, floor, snap, pending FROM leader;
