-- Make a checkpoint, as the leader of epoch $1: copy the state and the positions of streams. The
-- copy leaves out positions with a next_seq: after such a position, the stream has messages of
-- published events. The statement also deletes checkpoints that are older than an hour. An hour is
-- enough: a broker that syncs to its disk every two minutes does not lose messages that are an hour
-- old.
--
-- Locks   the new row, and the deleted ones.
-- Index   relay_checkpoint_pkey (id): there are few.
-- Called  by Term.Record, after record.sql in its transaction.
WITH leader AS (
    SELECT high, floor, snap, pending,
           --guard:checkpoint-before-published-events = streams
           coalesce((SELECT jsonb_object_agg(name, at) FROM jsonb_each(streams) AS s (name, at) WHERE NOT at ? 'next_seq'), '{}') AS streams
    --guard:marking-is-fenced true
    FROM postroom.relay WHERE epoch = $1
), old AS (
    DELETE FROM postroom.relay_checkpoint WHERE at < clock_timestamp() - interval '1 hour' AND EXISTS (SELECT FROM leader)
)
INSERT INTO postroom.relay_checkpoint (streams, high, floor, snap, pending)
SELECT streams, high, floor, snap, pending FROM leader;
