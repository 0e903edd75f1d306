-- A page of the events with seq > $1 and <= $2. The column published is true if the seq is at most
-- high ($7) and not in pending ($5), and the transaction is visible in $3. For a seq up to floor
-- ($4), the transaction does not count. For a seq up to $15, the transaction may also be visible in $14:
-- a relay has caught up with it (see published_bounds.sql). If published is false, the relay may now be publishing the
-- event. The column relevant is false for held, discarded and cancelled events. It is also false
-- for two kinds of events that the stream may get after the caller of Log.Entries has read the
-- stream's end:
--   - events that a republish still had to publish when the state was read, or that a newer
--     republish publishes. $8, $9 and $10 are the ids, passed and pending of the republishes that
--     ran then. $11 is the id of the newest republish at that time.
--   - events that were published from held since the state was read. $12 is the checkpoint that was
--     the newest then, and $13 has the events that were in its published_held then. The statement
--     finds the events that note_published.sql has added since to this checkpoint, or to later
--     ones.
--
-- If $16 is true, a stream is repaired. Then only the republishes of the relay itself count: an operator
-- may cancel the others, and the repair keeps the order of keys, which copies do not.
--
-- $6 the most rows. Of a text that is too large for an event, which is never published, the
-- statement returns the beginning.
--
-- Locks   none.
-- Index   outbox_pkey (seq); held_outgoing (pos), archive_outgoing (pos), republish_pkey (id),
--         relay_checkpoint_pkey (id).
-- Order   by seq.
-- Called  by Log.Entries.
SELECT o.seq,
       CASE WHEN octet_length(o.source) <= 512 THEN o.source ELSE left(o.source, 513) END AS source,
       CASE WHEN octet_length(o.event_id) <= 512 THEN o.event_id ELSE left(o.event_id, 513) END AS event_id,
       CASE WHEN octet_length(o.subject) <= 512 THEN o.subject ELSE left(o.subject, 513) END AS subject,
       CASE WHEN octet_length(o.key) <= 512 THEN o.key ELSE left(o.key, 513) END AS key,
       coalesce(postroom.clamped(o.created_at), now()) AS created_at,
       coalesce(postroom.clamped(greatest(o.created_at, o.not_before)), postroom.clamped(o.created_at), now()) AS logged_at,
       CASE WHEN o.not_before IS NULL AND octet_length(o.digest) = 16 THEN o.digest END AS digest,
       o.seq <= $7 AND (o.seq <= $4 OR pg_visible_in_snapshot(o.xid, $3::pg_snapshot)
                           --guard:what-a-relay-caught-up-with-is-compared false
                           OR o.seq <= $15 AND pg_visible_in_snapshot(o.xid, $14::pg_snapshot))
           AND NOT o.seq OPERATOR(pg_catalog.<@) $5::int8multirange AS published,
       NOT EXISTS (SELECT FROM postroom.held h WHERE h.handler = 'outbox' AND h.pos = o.seq AND h.republish IS NULL)
           AND NOT EXISTS (SELECT FROM postroom.archive a WHERE a.handler = 'outbox' AND a.pos = o.seq AND a.republish IS NULL)
           AND NOT o.seq OPERATOR(pg_catalog.<@) (SELECT coalesce(pg_catalog.range_agg(s), '{}') OPERATOR(pg_catalog.-) $13::int8multirange
                             --guard:a-comparison-leaves-out-held-events-published-meanwhile false
                             FROM postroom.relay_checkpoint c, pg_catalog.unnest(c.published_held) s WHERE c.id >= $12)
           AND NOT EXISTS (SELECT FROM postroom.republish w
                           JOIN unnest($8::int8[], $9::int8[], $10::text[]) AS was (id, passed, pending) ON was.id = w.id
                           --guard:a-comparison-leaves-out-running-republishes = w.state = 'running' AND (@)
                           WHERE (o.seq > was.passed AND o.seq <= w.hi OR was.pending::int8multirange OPERATOR(pg_catalog.@>) o.seq)
                             --guard:a-repair-does-not-wait-for-republishes true
                             AND (NOT $16::boolean OR w.kind = 'reconcile' AND w.actor = 'relay')
                             AND (w.seqs IS NULL OR w.seqs OPERATOR(pg_catalog.@>) o.seq)
                             AND (w.types IS NULL OR o.type = ANY (w.types)) AND (w.keys IS NULL OR o.key = ANY (w.keys)))
           AND NOT EXISTS (SELECT FROM postroom.republish w
                           WHERE w.id > $11 AND o.seq BETWEEN w.lo AND w.hi
                             AND (NOT $16::boolean OR w.kind = 'reconcile' AND w.actor = 'relay')
                             AND (w.seqs IS NULL OR w.seqs OPERATOR(pg_catalog.@>) o.seq)
                             AND (w.types IS NULL OR o.type = ANY (w.types)) AND (w.keys IS NULL OR o.key = ANY (w.keys))) AS relevant
FROM (SELECT * FROM postroom.outbox WHERE seq > $1 AND seq <= $2 ORDER BY seq LIMIT $6) o
ORDER BY o.seq;
