-- Return the events of key $2 of handler $1 that wait directly after place $3, at most $4 of them.
-- The list ends before the first event that is dead, was tried before, has to run alone, or is not
-- for this process ($5 and $6: the types and subjects that it handles, as in claim.sql). The list
-- also ends before it becomes larger than $7 bytes.
--
-- Locks   none: only the process with the claim on the first event of a key settles the
--         events behind it.
-- Index   held_chain_pos (handler, chain, pos).
-- Called  by Handler.BeginAlong, after BEGIN and plan.sql, in the same round trip.
SELECT handler, id, epoch, attempts + 1, solitary, dedupe_key, logged_at, source, event_id,
       type, subject, key, content_type, correlation_id, causation_id,
       occurred_at, trace_parent, trace_state, headers, data, raw_headers,
       revision, last_attempt, chain, pos, false AS followed, extract(epoch FROM now() - snoozed_at)::float8 AS snoozed,
       false AS ran_out, class, failures -> -1 ->> 'text' AS failure
FROM (
    SELECT *, bool_and(next_at IS NULL AND dead_at IS NULL AND NOT solitary AND attempts = 0
                       AND ($5::text IS NULL OR type = ANY (string_to_array($5::text, ' ')))
                       AND ($6::text IS NULL OR subject ~ $6::text)) OVER (ORDER BY pos)
              --guard:what-runs-along-is-bounded-by-bytes true
              AND sum(octet_length(data) + coalesce(octet_length(raw_headers), 0) + coalesce(pg_catalog.pg_column_size(headers), 0)) OVER (ORDER BY pos) <= $7::bigint AS may
    FROM (SELECT * FROM postroom.held
          WHERE held.handler = $1 AND held.chain = $2 AND held.pos > $3
          ORDER BY held.pos
          LIMIT $4::int) behind
) behind
WHERE may
ORDER BY pos;
