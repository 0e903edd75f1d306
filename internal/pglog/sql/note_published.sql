-- Add to the last checkpoint the events ($2, seqs) that were published from held, or again for a
-- republish, as the leader of epoch $1.
--
-- Locks   the last checkpoint.
-- Index   relay_checkpoint_pkey (id).
-- Called  by Term.Record.
UPDATE postroom.relay_checkpoint
--guard:all-that-is-published-from-held-is-noted 2 = published_held + (SELECT range_agg(@2.1) FROM unnest($2::bigint[]) AS s (seq) WHERE seq = ($2::bigint[])[cardinality($2::bigint[])])
SET published_held = published_held + (SELECT range_agg(int8range(seq, seq, '[]')) FROM unnest($2::bigint[]) AS s (seq))
--guard:settling-a-mark-is-fenced 2 true
WHERE id = (SELECT max(id) FROM postroom.relay_checkpoint) AND EXISTS (SELECT FROM postroom.relay WHERE epoch = $1);
