-- Take what was published from held ($2, seqs) out of it, as the leader of epoch
-- $1.
--
-- Locks   the held rows.
-- Index   held_outgoing (pos).
-- Called  by Term.Record.
DELETE FROM postroom.held
WHERE handler = 'outbox' AND pos = ANY ($2::bigint[])
  AND EXISTS (SELECT FROM postroom.relay WHERE epoch = $1);
