-- Add to the last checkpoint the events ($2, seqs) that were published from held, as the leader of
-- epoch $1.
--
-- Locks   the last checkpoint.
-- Index   relay_checkpoint_pkey (id).
-- Called  by Term.Record, with delete_published.sql.
UPDATE postroom.relay_checkpoint
SET published_held = published_held + (SELECT range_agg(int8range(seq, seq, '[]')) FROM unnest($2::bigint[]) AS s (seq))
WHERE id = (SELECT max(id) FROM postroom.relay_checkpoint) AND EXISTS (SELECT FROM postroom.relay WHERE epoch = $1);
