-- Order a republish of $3 events ($2, ranges of seqs), as the leader of epoch $1. The broker lost
-- these events, and has later events of their keys, or may have them.
--
-- Locks   the new rows.
-- Index   none.
-- Called  by Term.Record.
WITH leader AS (
    SELECT FROM postroom.relay WHERE epoch = $1
), audit AS (
    INSERT INTO postroom.audit (actor, action, reason, events)
    SELECT 'relay', 'reconcile', 'the broker has lost them, and has later events of their keys, or may have them', $3
    FROM leader
)
INSERT INTO postroom.republish (actor, reason, kind, lo, hi, seqs, events, rate, passed, digest)
SELECT 'relay', 'the broker has lost them, and has later events of their keys, or may have them', 'reconcile',
       lower($2::int8multirange), upper($2::int8multirange) - 1, $2::int8multirange, $3, 1000, lower($2::int8multirange) - 1,
       encode(sha256(convert_to('late ' || $2::int8multirange::text, 'UTF8')), 'hex')
FROM leader
ON CONFLICT (digest) WHERE state = 'running' DO NOTHING;
