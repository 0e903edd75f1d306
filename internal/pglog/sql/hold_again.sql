-- Record that the broker refused held events again, as the leader of epoch $1. The parameters are
-- those of hold.sql. If an event has a key, unblock.sql sets next_at, as after hold.sql.
--
-- Locks   the held rows.
-- Index   held_outgoing (pos).
-- Called  by Term.Record.
UPDATE postroom.held AS held
SET class = h.class,
    cause = h.cause,
    attempts = h.attempts,
    first_failed_at = coalesce(held.first_failed_at, now()),
    failures = CASE WHEN jsonb_array_length(held.failures) >= 10 THEN held.failures - 0 ELSE coalesce(held.failures, '[]') END
        || jsonb_build_object('at', now(), 'class', h.class, 'text', h.text),
    dead_at = CASE WHEN h.dead THEN now() END,
    next_at = CASE WHEN NOT h.dead AND held.chain IS NULL THEN now() + h.after END
FROM unnest($2::bigint[], $3::text[], $4::text[], $5::text[], $6::int[], $7::bool[], $8::interval[], $9::bytea[], $10::bigint[])
         AS h (seq, key, class, text, attempts, dead, after, cause, republish)
WHERE held.handler = 'outbox' AND held.pos = h.seq
  AND EXISTS (SELECT FROM postroom.relay WHERE epoch = $1);
