-- For each key in $2, make only the first held event due, as the leader of epoch $1. An event that
-- failed just now ($3, seqs) is due after $4. An event that has waited is due at once. If the first
-- event is dead, all events of its key wait.
--
-- An event that became visible late can come before an event of its key that is due already. Then
-- the event that was due waits again.
--
-- Locks   the held rows.
-- Index   held_chain_pos (handler, chain, pos), held_chain_due (handler, chain).
-- Called  by Term.Record.
WITH first AS (
    SELECT k.chain, (SELECT min(pos) FROM postroom.held WHERE handler = 'outbox' AND chain = k.chain) AS pos
    FROM unnest($2::text[]) AS k (chain)
    --guard:waking-is-fenced true
    WHERE EXISTS (SELECT FROM postroom.relay WHERE epoch = $1)
), passed AS (
    UPDATE postroom.held AS held
    SET next_at = NULL
    FROM first
    WHERE held.handler = 'outbox' AND held.chain = first.chain AND held.next_at IS NOT NULL AND held.pos > first.pos
    RETURNING held.pos
)
UPDATE postroom.held AS held
SET next_at = now() + coalesce((SELECT f.after FROM unnest($3::bigint[], $4::interval[]) AS f (seq, after) WHERE f.seq = held.pos), '0')
FROM first
WHERE (SELECT count(*) FROM passed) >= 0 -- so that passed runs first: only one event of a key may be due
  AND held.handler = 'outbox' AND held.chain = first.chain AND held.pos = first.pos
  AND held.dead_at IS NULL AND held.next_at IS NULL;
