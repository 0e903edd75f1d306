-- Record that the call $5 did not happen: a call of step $3 in revision $4, for the event with
-- dedupe key $2 of handler $1. If other calls of the step are unanswered, the receipt stays. The
-- statement may be repeated or late. So it changes nothing if $5 is not the call that began last.
--
-- Locks   the receipt.
-- Index   receipt's primary key.
-- Called  by Receipts.Undo.
WITH others AS (
    UPDATE postroom.receipt SET unanswered = unanswered - 1, last_call = NULL
    WHERE handler = $1 AND dedupe_key = $2 AND step = $3 AND revision = $4 AND done_at IS NULL AND unanswered > 1
      --guard:a-refusal-counts-once true
      AND last_call = $5::uuid
)
DELETE FROM postroom.receipt
WHERE handler = $1 AND dedupe_key = $2 AND step = $3 AND revision = $4 AND done_at IS NULL AND unanswered = 1
  --guard:a-late-refusal-removes-no-other-receipt true
  AND last_call = $5::uuid;
