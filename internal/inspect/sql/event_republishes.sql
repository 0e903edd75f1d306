-- The republishes that cover one of the events with the seqs $1, from the last 1,000 republishes.
-- The column passed says whether the relay is done with the event: it published, skipped or held
-- the event.
--
-- Locks   none.
-- Index   republish_pkey (id), from its end; outbox_pkey (seq).
-- Order   by id and seq.
-- Called  by Inspector.Event.
SELECT r.id, o.seq, r.kind, r.actor, r.reason, r.created_at, r.state, r.ended_at,
       o.seq <= r.passed AND NOT r.pending OPERATOR(pg_catalog.@>) o.seq AS passed
FROM (SELECT * FROM postroom.republish ORDER BY id DESC LIMIT 1000) r
CROSS JOIN (SELECT seq, type, key, created_at FROM postroom.outbox WHERE seq = ANY ($1::bigint[])) o
WHERE o.seq BETWEEN r.lo AND r.hi
  AND (r.seqs IS NULL OR r.seqs OPERATOR(pg_catalog.@>) o.seq)
  AND (r.types IS NULL OR o.type = ANY (r.types))
  AND (r.keys IS NULL OR o.key = ANY (r.keys))
  AND (r.since IS NULL OR o.created_at >= r.since)
  AND (r.until IS NULL OR o.created_at < r.until)
ORDER BY r.id, o.seq
LIMIT 100;
