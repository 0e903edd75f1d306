-- Remove the receipt of step $3 in revision $4, of the event with dedupe key $2 of handler $1. The
-- vendor said that it carried out none of the step's calls. If another call began after this
-- process read the receipt, nothing is removed. When the process read it, the receipt had the start
-- $5 and $6 unanswered calls, of which $7 began last.
--
-- Locks   the receipt.
-- Index   receipt's primary key.
-- Called  by Receipts.Forget.
DELETE FROM postroom.receipt
WHERE handler = $1 AND dedupe_key = $2 AND step = $3 AND revision = $4
  AND done_at IS NULL AND started_at = $5 AND unanswered = $6
  AND last_call IS NOT DISTINCT FROM $7::uuid;
