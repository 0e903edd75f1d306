-- Later events of key $2 of handler $1 no longer wait for the event at place $3. If that event still
-- has its place, because this process no longer had the claim on it, nothing changes. If the next
-- event of the key waits, claim it for process $4 and for time $5, and return it. In four cases the
-- statement only makes it due: $4 is NULL, the process does not handle the event ($6 and $7: its
-- types and subjects, as in claim.sql), the event has to run alone, or it has more than $8 bytes.
--
-- The time $5 counts from the statement and not from the begin of the transaction (now()), because
-- a handler has run in the transaction.
--
-- Locks   the held row; the key is locked before.
-- Index   held_chain_pos (handler, chain, pos), held_pkey (id).
-- Called  by Handler.SettleKey, Handler.LeaveKey and Handler.noting, after lock_key.sql and
--         plan.sql, in one transaction.
WITH next AS (
    UPDATE postroom.held AS held
    --guard:a-claim-on-the-next-event-lasts-its-time 1.2 = @3 + CASE WHEN @1 THEN @2.2 ELSE '0' END
    SET next_at = CASE WHEN n.take THEN clock_timestamp() + $5::interval ELSE now() END, attempts = held.attempts + n.take::int,
        epoch = held.epoch + n.take::int, claimed_by = CASE WHEN n.take THEN $4::text END
    FROM (
        SELECT h.id, $4::text IS NOT NULL AND NOT h.solitary
                     AND ($6::text IS NULL OR h.type = ANY (string_to_array($6::text, ' ')))
                     AND ($7::text IS NULL OR h.subject ~ $7::text)
                     --guard:a-follower-is-bounded-by-bytes true
                     AND octet_length(h.data) + coalesce(octet_length(h.raw_headers), 0) + coalesce(pg_catalog.pg_column_size(h.headers), 0) <= $8::bigint AS take
        FROM (SELECT * FROM postroom.held
              WHERE held.handler = $1 AND held.chain = $2 AND held.pos > $3
              ORDER BY held.pos
              LIMIT 1) h
        WHERE h.next_at IS NULL AND h.dead_at IS NULL
          --guard:a-stalled-owner-lets-no-later-event-run true
          AND NOT EXISTS (SELECT FROM postroom.held WHERE held.handler = $1 AND held.chain = $2 AND held.pos = $3)
    ) n
    WHERE held.id = n.id
    RETURNING n.take, held.*
)
SELECT handler, id, epoch, attempts, solitary, dedupe_key, logged_at, source, event_id,
       type, subject, key, content_type, correlation_id, causation_id,
       occurred_at, trace_parent, trace_state, headers, data, raw_headers,
       revision, last_attempt, chain, pos,
       EXISTS (SELECT FROM postroom.held h WHERE h.handler = next.handler AND h.chain = next.chain AND h.pos > next.pos) AS followed,
       extract(epoch FROM now() - snoozed_at)::float8 AS snoozed, false AS ran_out, class, failures -> -1 ->> 'text' AS failure
FROM next
WHERE take;
