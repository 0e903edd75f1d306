-- Forget calls of step $3 in revision $4 of the event with dedupe key $2 at handler
-- $1: the vendor was asked and did none of them. Nothing is forgotten where another
-- was begun since the receipt was read with the start $5 and $6 of them unanswered.
--
-- Locks   the receipt.
-- Index   receipt's primary key.
-- Called  by Receipts.Forget.
DELETE FROM postroom.receipt
WHERE handler = $1 AND dedupe_key = $2 AND step = $3 AND revision = $4
  AND done_at IS NULL AND started_at = $5 AND unanswered = $6;
