-- Count the events from seq $1 through $2 that a request selects. Also return the first and the
-- last of their seqs, and the earliest and the latest time at which one of them was written. The
-- other parameters are the request's conditions, as in republish_page.sql: types $3, keys $4, since
-- $5 and until $6. NULL is no condition.
--
-- Locks   none.
-- Index   outbox_pkey (seq).
-- Called  by Store.PreviewRepublish and Store.Republish, for 50,000 seqs at a time.
SELECT count(*), coalesce(min(seq), 0) AS first, coalesce(max(seq), 0) AS last, min(postroom.clamped(created_at)) AS earliest, max(postroom.clamped(created_at)) AS latest
FROM postroom.outbox
WHERE seq >= $1 AND seq <= $2
  AND ($3::text[] IS NULL OR type = ANY ($3))
  AND ($4::text[] IS NULL OR key = ANY ($4))
  AND ($5::timestamptz IS NULL OR created_at >= $5)
  AND ($6::timestamptz IS NULL OR created_at < $6);
