-- Return the held event $1 of handler $2, for a dry run, in the form of claim.sql.
--
-- Locks   none.
-- Index   held_pkey (id).
-- Called  by Claims.Try.
SELECT handler, id, epoch, attempts + 1, solitary, dedupe_key, logged_at, source, event_id,
       type, subject, key, content_type, correlation_id, causation_id,
       occurred_at, trace_parent, trace_state, headers, data, raw_headers,
       revision, last_attempt, chain, pos, false AS followed, NULL::float8 AS snoozed,
       false AS ran_out, class, failures -> -1 ->> 'text' AS failure
FROM postroom.held
WHERE id = $1 AND handler = $2;
