-- For each key in $2 with its handler in $1, make the first event due, because the event for which
-- it waited is gone. Nothing changes if the first event of a key is dead, or if an event of the key
-- has a due time already.
--
-- Locks   the held rows. The caller has already locked the keys and the row of relay.
-- Index   held_chain_pos (handler, chain, pos), held_chain_due (handler, chain).
-- Called  by Tables.Wake, after statements that remove rows with a key.
UPDATE postroom.held SET next_at = now()
FROM (
    SELECT (SELECT o.id FROM postroom.held o WHERE o.handler = k.handler AND o.chain = k.chain ORDER BY o.pos LIMIT 1) AS id
    FROM unnest($1::text[], $2::text[]) AS k (handler, chain)
    WHERE NOT EXISTS (SELECT FROM postroom.held o WHERE o.handler = k.handler AND o.chain = k.chain AND o.next_at IS NOT NULL)
) first
WHERE held.id = first.id AND held.next_at IS NULL AND held.dead_at IS NULL;
