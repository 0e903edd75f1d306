-- Record what is published, as the leader of epoch $1, and keep the lease for
-- $6 more. What was published from held ($7, seqs) leaves it; what the log has
-- scheduled for later ($8, seqs) enters it. All of it happens or none: no row
-- says that another epoch began.
--
-- Locks   the one row of relay, the held rows.
-- Index   held_outgoing (pos), outbox_pkey (seq).
-- Called  by Term.Record.
WITH state AS (
    UPDATE postroom.relay
    SET high = $2, floor = $3, snap = $4::pg_snapshot, pending = $5::int8multirange,
        expires_at = clock_timestamp() + $6::interval
    WHERE epoch = $1
    RETURNING epoch
), published AS (
    DELETE FROM postroom.held
    WHERE handler = 'outbox' AND pos = ANY ($7::bigint[]) AND EXISTS (SELECT FROM state)
), scheduled AS (
    INSERT INTO postroom.held (handler, pos, next_at, logged_at, source, event_id, type, subject, event_key, content_type,
                               correlation_id, causation_id, occurred_at, trace_parent, trace_state, headers, data)
    SELECT 'outbox', seq, not_before, greatest(created_at, not_before), source, event_id, type, subject, key, content_type,
           correlation_id, causation_id, occurred_at, trace_parent, trace_state, headers, data
    FROM postroom.outbox
    WHERE seq = ANY ($8::bigint[]) AND EXISTS (SELECT FROM state)
    ON CONFLICT (pos) WHERE handler = 'outbox' DO NOTHING
)
SELECT epoch FROM state;
