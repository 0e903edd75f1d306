-- The first seq whose event was written at $1 or later. A binary search finds it, because
-- created_at rises with seq, except after the clock was set back.
--
-- Locks   none.
-- Index   outbox_pkey (seq), twice for the ends and once for each of at most 64 halvings.
-- Called  by Reader.seqAt.
WITH RECURSIVE edge AS (
    SELECT (SELECT seq FROM postroom.outbox ORDER BY seq LIMIT 1) AS lo, (SELECT seq FROM postroom.outbox ORDER BY seq DESC LIMIT 1) + 1 AS hi
), halving (lo, hi, n) AS (
    SELECT lo, hi, 0 FROM edge WHERE lo IS NOT NULL
    UNION ALL
    SELECT CASE WHEN p.created_at < $1::timestamptz THEN p.seq + 1 ELSE h.lo END,
           CASE WHEN p.created_at < $1::timestamptz THEN h.hi ELSE h.lo + (h.hi - h.lo) / 2 END,
           h.n + 1
    FROM halving h
    LEFT JOIN LATERAL (
        SELECT seq, created_at FROM postroom.outbox
        WHERE outbox.seq >= h.lo + (h.hi - h.lo) / 2 AND outbox.seq < h.hi
        ORDER BY outbox.seq LIMIT 1
    ) p ON true
    WHERE h.lo < h.hi AND h.n < 64
)
SELECT coalesce((SELECT lo FROM halving ORDER BY n DESC LIMIT 1), 0);
