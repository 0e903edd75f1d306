-- Take the oldest webhook that is not done and that no other worker has locked, and mark it as
-- done. Work runs the workers that a service without Postroom would have. Each webhook is a job for
-- one worker.
--
-- Locks   its row, until the transaction ends.
-- Index   webhook_by_hand_received_at_idx.
-- Called  by Work.
UPDATE postroom.webhook_by_hand SET done_at = now()
WHERE id = (SELECT id FROM postroom.webhook_by_hand WHERE done_at IS NULL ORDER BY received_at LIMIT 1 FOR UPDATE SKIP LOCKED);
