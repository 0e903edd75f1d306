-- Count the events from seq $1 through $2 that a request selects. Also return the first and the
-- last of them, and when these two were written. The parameters are as in republish_page.sql:
-- $3 types   $4 keys   $5 since   $6 until. NULL selects all.
--
-- Locks   none.
-- Index   outbox_pkey (seq).
-- Called  by Store.Preview and Store.Start, some thousand seqs at a time.
SELECT count(*), coalesce(min(seq), 0) AS first, coalesce(max(seq), 0) AS last, min(postroom.clamped(created_at)) AS earliest, max(postroom.clamped(created_at)) AS latest
FROM postroom.outbox
WHERE seq >= $1 AND seq <= $2
  AND ($3::text[] IS NULL OR type = ANY ($3))
  AND ($4::text[] IS NULL OR key = ANY ($4))
  AND ($5::timestamptz IS NULL OR created_at >= $5)
  AND ($6::timestamptz IS NULL OR created_at < $6);
