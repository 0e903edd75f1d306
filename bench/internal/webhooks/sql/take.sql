-- Take the oldest webhook that is not done, as the job of a hand-written worker.
--
-- Locks   its row, until the transaction ends.
-- Index   webhook_by_hand_received_at_idx.
-- Called  by Work.
UPDATE postroom.webhook_by_hand SET done_at = now()
WHERE id = (SELECT id FROM postroom.webhook_by_hand WHERE done_at IS NULL ORDER BY received_at LIMIT 1 FOR UPDATE SKIP LOCKED);
