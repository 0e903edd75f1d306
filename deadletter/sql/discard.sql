-- Move the dead events $1 to the archive, with audit row $2. Their rows of inbox stay, get the
-- current time, and say that the events were discarded. The statement returns the keys that the moved events blocked, and how many moved
-- events each key had. A row without a key counts the events that blocked no key.
--
-- Locks   the held rows and their inbox rows. The caller has already locked the keys and the row of relay.
-- Index   held_pkey (id), inbox's primary key.
-- Called  by Store.Discard, after relay_lock.sql and keys_lock.sql.
WITH gone AS (
    DELETE FROM postroom.held WHERE id = ANY ($1::bigint[]) AND dead_at IS NOT NULL
    RETURNING *
), kept AS (
    INSERT INTO postroom.archive (id, audit, handler, dedupe_key, pos, dead_at, held_at, attempts, solitary, class, cause, failures,
                                  first_failed_at, revision, replay, replays, republish, logged_at, source, event_id, type, subject, key,
                                  content_type, correlation_id, causation_id, occurred_at, trace_parent, trace_state, headers, data, raw_headers)
    SELECT id, $2, handler, dedupe_key, pos, dead_at, held_at, attempts, solitary, class, cause, failures,
           first_failed_at, revision, replay, replays, republish, logged_at, source, event_id, type, subject, key,
           content_type, correlation_id, causation_id, occurred_at, trace_parent, trace_state, headers, data, raw_headers
    FROM gone
), noted AS (
    UPDATE postroom.inbox SET at = now(), discarded = true
    FROM gone
    WHERE inbox.handler = gone.handler AND inbox.dedupe_key = gone.dedupe_key
)
SELECT handler, chain, count(*) FROM gone GROUP BY handler, chain;
