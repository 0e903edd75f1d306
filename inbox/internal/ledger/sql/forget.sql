-- Remove the record of calls of step $3 in revision $4 of the event with dedupe key $2 at
-- handler $1: the vendor said that it carried out none of these calls. If another call began
-- since the receipt was read, nothing is removed. When it was read, the receipt had the start
-- $5 and $6 unanswered calls, of which $7 began last.
--
-- Locks   the receipt.
-- Index   receipt's primary key.
-- Called  by Receipts.Forget.
DELETE FROM postroom.receipt
WHERE handler = $1 AND dedupe_key = $2 AND step = $3 AND revision = $4
  AND done_at IS NULL AND started_at = $5 AND unanswered = $6
  AND last_call IS NOT DISTINCT FROM $7::uuid;
