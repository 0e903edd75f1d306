-- Remove the receipt of step $3 in revision $4, of the event with dedupe key $2 of handler $1. The
-- vendor (the called system) said that it carried out none of the step's calls. The statement
-- removes nothing if another call began after this process read the receipt. When the process read
-- it, the receipt had the start $5 and $6 unanswered calls, and the call that began last was $7.
--
-- Locks   the receipt.
-- Index   receipt's primary key.
-- Called  by Receipts.Forget.
DELETE FROM postroom.receipt
WHERE handler = $1 AND dedupe_key = $2 AND step = $3 AND revision = $4
  AND done_at IS NULL AND started_at = $5 AND unanswered = $6
  AND last_call IS NOT DISTINCT FROM $7::uuid;
