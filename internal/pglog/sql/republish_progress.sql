-- Record the progress of republish $2, as the leader of epoch $1. The republish is read up to seq
-- $3, and the events of $4 are pending. $5 events were published, $6 skipped, $7 held. $8 says
-- whether the republish is done. A republish that was cancelled stays cancelled.
--
-- Locks   the row of the republish, after that of relay.
-- Index   republish_pkey (id).
-- Called  by Term.Record.
UPDATE postroom.republish
SET passed = $3, pending = $4::int8multirange, published = $5, skipped = $6, held = $7,
    state = CASE WHEN state = 'running' AND $8 THEN 'done' ELSE state END,
    ended_at = CASE WHEN state = 'running' AND $8 THEN clock_timestamp() ELSE ended_at END
WHERE id = $2 AND EXISTS (SELECT FROM postroom.relay WHERE epoch = $1);
