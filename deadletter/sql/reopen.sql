-- Bring the discarded events $1 back as dead events. They get no key in held: no other event waits
-- behind them, because later events of their keys may have taken effect. An event that was not dead
-- when it was cancelled becomes dead now. If it never failed, it gets the class cancelled. The
-- statement returns how many events it brought back.
--
-- Locks   the archived rows, the new rows and their inbox rows.
-- Index   archive_pkey (id), inbox's primary key.
-- Called  by Store.Reopen.
WITH back AS (
    DELETE FROM postroom.archive WHERE id = ANY ($1::bigint[])
    RETURNING *
), held AS (
    INSERT INTO postroom.held (id, handler, dedupe_key, pos, dead_at, held_at, attempts, solitary, class, cause, failures,
                               first_failed_at, revision, replay, replays, republish, logged_at, source, event_id, type, subject, key,
                               content_type, correlation_id, causation_id, occurred_at, trace_parent, trace_state, headers, data, raw_headers)
    OVERRIDING SYSTEM VALUE
    SELECT id, handler, dedupe_key, pos, coalesce(dead_at, now()), held_at, attempts, solitary, coalesce(class, 'cancelled'), cause, failures,
           first_failed_at, revision, replay, replays, republish, logged_at, source, event_id, type, subject, key,
           content_type, correlation_id, causation_id, occurred_at, trace_parent, trace_state, headers, data, raw_headers
    FROM back
    RETURNING 1
), noted AS (
    --guard:a-reopened-event-is-not-discarded 2 = true
    UPDATE postroom.inbox SET discarded = NULL
    FROM back
    WHERE inbox.handler = back.handler AND inbox.dedupe_key = back.dedupe_key
)
SELECT count(*) FROM held;
