-- Note with the last mark that events ($2, seqs) were published from held since, as the
-- leader of epoch $1.
--
-- Locks   the last mark.
-- Index   relay_mark_pkey (id).
-- Called  by Term.Record, with settle.sql.
UPDATE postroom.relay_mark
SET settled = settled + (SELECT range_agg(int8range(seq, seq, '[]')) FROM unnest($2::bigint[]) AS s (seq))
WHERE id = (SELECT max(id) FROM postroom.relay_mark) AND EXISTS (SELECT FROM postroom.relay WHERE epoch = $1);
