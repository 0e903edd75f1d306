-- Claim one event that has to run alone, for process $1: it is a suspect, or its
-- claim ran out, and so may have ended the process that ran it. Parameters as in
-- claim.sql, of which $3 has no meaning here.
--
-- Locks   the claimed row; skips those that another process is claiming.
-- Index   held_alone (handler, next_at).
-- Called  by runner.claim.
UPDATE postroom.held AS held
SET attempts = held.attempts + 1, epoch = held.epoch + 1, claimed_by = $1, next_at = now() + due.lease, solitary = true
FROM (
    SELECT due.id, h.lease
    FROM unnest($2::text[], $3::int[], $4::interval[], $5::text[], $6::text[]) AS h (handler, most, lease, types, subjects)
    CROSS JOIN LATERAL (
        SELECT id, next_at FROM postroom.held
        WHERE held.handler = h.handler AND next_at <= now() AND (solitary OR claimed_by IS NOT NULL)
          AND (h.types IS NULL OR raw_headers IS NOT NULL OR type = ANY (string_to_array(h.types, ' ')))
          AND (h.subjects IS NULL OR pos IS NULL OR subject ~ h.subjects)
        ORDER BY next_at
        LIMIT 1
        FOR UPDATE SKIP LOCKED
    ) due
    ORDER BY due.next_at
    LIMIT 1
) due
WHERE held.id = due.id
RETURNING held.handler, held.id, held.epoch, held.attempts, held.solitary, held.dedupe_key, held.logged_at, held.source, held.event_id,
          held.type, held.subject, held.event_key, held.content_type, held.correlation_id, held.causation_id,
          held.occurred_at, held.trace_parent, held.trace_state, held.headers, held.data, held.raw_headers,
          held.revision, held.key, held.pos;
