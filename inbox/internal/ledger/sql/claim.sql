-- Claim events that are due, for process $1. Each claim counts as an attempt at once, even if the
-- process then ends. Each array has one element for each handler.
--
-- $2 handler   $3 the largest number of events   $4 how long the claim lasts   $5 the types that
-- this process handles, with spaces between them; NULL: all   $6 a pattern for the subjects that
-- this process handles; NULL: all   $7 a number of deaths: if a claim of an event ran out, and as
-- many claims ran out before it, the event has to run alone; -1: no event has to   $8 the largest number of bytes   $9 whether this process
-- has no claim of the handler; if so, the first event may have any size. It may have any size as well
-- if it has been due for a minute: otherwise a run that takes hours would stop all other events.
--
-- $5 does not apply to messages that are not events, because they have no type. $6 applies only to
-- events from a stream.
--
-- Locks   the claimed rows, and the rows that were too large to be claimed with them; skips
--         rows that another process is claiming.
-- Index   held_due (handler, next_at, pos).
-- Called  by Claims.Claim.
UPDATE postroom.held AS held
SET attempts = held.attempts + 1, epoch = held.epoch + 1, deaths = held.deaths + due.ran_out::int, claimed_by = $1, next_at = now() + h.lease
FROM unnest($2::text[], $3::int[], $4::interval[], $5::text[], $6::text[], $7::int[], $8::bigint[], $9::bool[]) AS h (handler, most, lease, types, subjects, spared, bytes, idle)
CROSS JOIN LATERAL (
    SELECT sized.id, sized.ran_out
    FROM (SELECT first.id, first.ran_out, first.next_at, row_number() OVER earlier AS nth, sum(first.size) OVER earlier AS bytes
          FROM (SELECT id, next_at, claimed_by IS NOT NULL AS ran_out, octet_length(data) + coalesce(octet_length(raw_headers), 0) + coalesce(pg_catalog.pg_column_size(headers), 0) AS size
                FROM postroom.held
                WHERE held.handler = h.handler AND next_at <= now() AND NOT (h.spared >= 0 AND (solitary OR claimed_by IS NOT NULL AND deaths >= h.spared))
                  AND (h.types IS NULL OR raw_headers IS NOT NULL OR type = ANY (string_to_array(h.types, ' ')))
                  AND (h.subjects IS NULL OR pos IS NULL OR subject ~ h.subjects)
                ORDER BY next_at
                LIMIT h.most
                --guard:claims-skip-what-is-locked do FOR UPDATE
                FOR UPDATE SKIP LOCKED) first
          WINDOW earlier AS (ORDER BY first.next_at, first.id)) sized
    --guard:claims-are-bounded-by-bytes true
    --guard:an-event-larger-than-the-bound-is-claimed 2 false
    --guard:a-large-event-waits-for-no-long-run 2.2.2 false
    WHERE sized.bytes <= h.bytes OR sized.nth = 1 AND (h.idle OR sized.next_at < now() - interval '1 minute')
) due
WHERE held.id = due.id
RETURNING held.handler, held.id, held.epoch, held.attempts, held.solitary, held.dedupe_key, held.logged_at, held.source, held.event_id,
          held.type, held.subject, held.key, held.content_type, held.correlation_id, held.causation_id,
          held.occurred_at, held.trace_parent, held.trace_state, held.headers, held.data, held.raw_headers,
          held.revision, held.last_attempt, held.chain, held.pos,
          EXISTS (SELECT FROM postroom.held h WHERE h.handler = held.handler AND h.chain = held.chain AND h.pos > held.pos) AS followed,
          extract(epoch FROM now() - held.snoozed_at)::float8 AS snoozed, due.ran_out, held.class, held.failures -> -1 ->> 'text' AS failure;
