-- Note how far rewind $2 is, as the leader of epoch $1: it was read up to $3, of which
-- $4 is owed; so many events were published ($5), skipped ($6) and held ($7); and
-- whether it is done ($8). One that was cancelled stays so.
--
-- Locks   the rewind's row, after that of relay.
-- Index   rewind_pkey (id).
-- Called  by Term.Record.
UPDATE postroom.rewind
SET passed = $3, owed = $4::int8multirange, published = $5, skipped = $6, held = $7,
    state = CASE WHEN state = 'running' AND $8 THEN 'done' ELSE state END,
    ended_at = CASE WHEN state = 'running' AND $8 THEN clock_timestamp() ELSE ended_at END
WHERE id = $2 AND EXISTS (SELECT FROM postroom.relay WHERE epoch = $1);
