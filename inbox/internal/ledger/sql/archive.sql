-- Handler $1 discarded the event with dedupe key $2. Move the event from held to the archive, and
-- write a row of audit with the reason $3. The event's inbox row stays, gets the current time, and says that the event was discarded.
-- If another process has claimed the event, or an operator has acted on it, nothing is moved.
--
-- Locks   the held row and its inbox row.
-- Index   held_owed (handler, dedupe_key), inbox's primary key.
-- Called  by DB.Store and Handler.HoldIn, after hold.sql, and by Handler.noting, after
--         fail.sql, in the same transaction.
WITH gone AS (
    DELETE FROM postroom.held
    WHERE handler = $1 AND dedupe_key = $2 AND dead_at IS NOT NULL AND class = 'discarded'
    RETURNING *
), said AS ( -- one row at most, as held_owed is unique
    INSERT INTO postroom.audit (actor, action, reason, events, handler, source, event_id)
    SELECT 'handler', 'discard', $3, 1, handler, source, event_id FROM gone
    RETURNING id AS audit
), noted AS (
    UPDATE postroom.inbox SET at = now(), discarded = true
    FROM gone
    WHERE inbox.handler = gone.handler AND inbox.dedupe_key = gone.dedupe_key
)
INSERT INTO postroom.archive (id, audit, handler, dedupe_key, pos, dead_at, held_at, attempts, solitary, class, cause, failures,
                              first_failed_at, revision, replay, replays, republish, logged_at, source, event_id, type, subject, key,
                              content_type, correlation_id, causation_id, occurred_at, trace_parent, trace_state, headers, data, raw_headers)
SELECT id, audit, handler, dedupe_key, pos, dead_at, held_at, attempts, solitary, class, cause, failures,
       first_failed_at, revision, replay, replays, republish, logged_at, source, event_id, type, subject, key,
       content_type, correlation_id, causation_id, occurred_at, trace_parent, trace_state, headers, data, raw_headers
FROM gone, said;
