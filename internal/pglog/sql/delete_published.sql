-- Delete from held the events ($2, seqs) that were published, as the leader of epoch $1. The table
-- refused keeps the last ten failures of such an event as long as the log has its row. If the log
-- no longer has the row, the failures are not kept.
--
-- Locks   the held rows, the rows of refused.
-- Index   held_outgoing (pos); if there are failures, outbox_pkey (seq) and refused_pkey (seq).
-- Called  by Term.Record.
WITH published AS (
    DELETE FROM postroom.held
    WHERE handler = 'outbox' AND pos = ANY ($2::bigint[])
      AND EXISTS (SELECT FROM postroom.relay WHERE epoch = $1)
    RETURNING pos, failures
)
INSERT INTO postroom.refused AS refused (seq, failures)
SELECT pos, failures FROM published
--guard:a-publishing-keeps-the-failures-before-it false
--guard:failures-are-kept-of-what-is-in-the-log = @1
WHERE failures IS NOT NULL AND (SELECT true FROM postroom.outbox WHERE seq = pos)
ON CONFLICT (seq) DO UPDATE
SET failures = (
    SELECT jsonb_agg(last.failure ORDER BY last.n)
    FROM (SELECT e.failure, e.n FROM jsonb_array_elements(refused.failures || excluded.failures) WITH ORDINALITY AS e (failure, n)
          --guard:ten-failures-are-kept do ORDER BY e.n DESC
          ORDER BY e.n DESC LIMIT 10) AS last);
