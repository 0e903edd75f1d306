-- Move the events $1, except the dead ones, to the archive, with audit row $2. Their inbox rows
-- stay, get the current time, and say that the events were discarded. The statement returns the handler of each event. It also returns
-- the key, if the event blocked its key or waited behind an earlier event of its key.
--
-- Locks   the held rows and their inbox rows. The caller has already locked the held rows, their
--         keys and the row of relay.
-- Index   held_pkey (id), inbox's primary key.
-- Called  by action.archive, after lock.sql.

--planted:cancelled-and-run do WITH gone AS (SELECT * FROM postroom.held WHERE id = ANY ($1::bigint[]) AND dead_at IS NULL)
WITH gone AS (
    DELETE FROM postroom.held WHERE id = ANY ($1::bigint[]) AND dead_at IS NULL
    RETURNING *
), kept AS (
    INSERT INTO postroom.archive (id, audit, handler, dedupe_key, pos, dead_at, held_at, attempts, solitary, class, cause, failures,
                                  first_failed_at, revision, replay, replays, republish, logged_at, source, event_id, type, subject, key,
                                  content_type, correlation_id, causation_id, occurred_at, trace_parent, trace_state, headers, data, raw_headers)
    SELECT id, $2, handler, dedupe_key, pos, NULL, held_at, attempts, solitary, class, cause, failures,
           first_failed_at, revision, replay, replays, republish, logged_at, source, event_id, type, subject, key,
           content_type, correlation_id, causation_id, occurred_at, trace_parent, trace_state, headers, data, raw_headers
    FROM gone
    ON CONFLICT DO NOTHING -- archived already if its producer cancelled it before the relay held it
), noted AS (
    UPDATE postroom.inbox SET at = now(), discarded = true
    FROM gone
    WHERE inbox.handler = gone.handler AND inbox.dedupe_key = gone.dedupe_key
)
SELECT DISTINCT handler::text, chain FROM gone;
