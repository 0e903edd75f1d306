-- Claim one event that has to run alone, for process $1: the event is marked as solitary, or its
-- claim ran out, and at least $7 claims ran out before it. Such an event may have ended the process
-- that ran it. If $7 is -1, no event of the handler has to run alone.
-- If its claim ran out, the next 99 events of its key become solitary, too, because they may have
-- run in the same transaction. The parameters are the first seven of claim.sql; $3 is not used.
--
-- Locks   the claimed row, and the rows behind it in its key; skips rows that another process
--         is claiming.
-- Index   held_alone (handler, next_at), held_chain_pos (handler, chain, pos).
-- Called  by Claims.ClaimAlone.
WITH due AS (
    SELECT due.*, h.lease
    FROM unnest($2::text[], $3::int[], $4::interval[], $5::text[], $6::text[], $7::int[]) AS h (handler, most, lease, types, subjects, spared)
    CROSS JOIN LATERAL (
        SELECT id, handler, chain, pos, next_at, claimed_by IS NOT NULL AS ran_out FROM postroom.held
        WHERE held.handler = h.handler AND next_at <= now() AND h.spared >= 0 AND (solitary OR claimed_by IS NOT NULL AND deaths >= h.spared)
          AND (h.types IS NULL OR raw_headers IS NOT NULL OR type = ANY (string_to_array(h.types, ' ')))
          AND (h.subjects IS NULL OR pos IS NULL OR subject ~ h.subjects)
        ORDER BY next_at
        LIMIT 1
        FOR UPDATE SKIP LOCKED
    ) due
    ORDER BY due.next_at
    LIMIT 1
), along AS (
    UPDATE postroom.held AS held SET solitary = true
    FROM due
    CROSS JOIN LATERAL (
        SELECT id FROM postroom.held
        WHERE held.handler = due.handler AND held.chain = due.chain AND held.pos > due.pos
        ORDER BY held.pos
        LIMIT 99
    ) behind
    WHERE held.id = behind.id AND due.ran_out
)
UPDATE postroom.held AS held
SET attempts = held.attempts + 1, epoch = held.epoch + 1, deaths = held.deaths + due.ran_out::int, claimed_by = $1, next_at = now() + due.lease, solitary = true
FROM due
WHERE held.id = due.id
RETURNING held.handler, held.id, held.epoch, held.attempts, held.solitary, held.dedupe_key, held.logged_at, held.source, held.event_id,
          held.type, held.subject, held.key, held.content_type, held.correlation_id, held.causation_id,
          held.occurred_at, held.trace_parent, held.trace_state, held.headers, held.data, held.raw_headers,
          held.revision, held.last_attempt, held.chain, held.pos,
          EXISTS (SELECT FROM postroom.held h WHERE h.handler = held.handler AND h.chain = held.chain AND h.pos > held.pos) AS followed,
          extract(epoch FROM now() - held.snoozed_at)::float8 AS snoozed, due.ran_out, held.class, held.failures -> -1 ->> 'text' AS failure;
