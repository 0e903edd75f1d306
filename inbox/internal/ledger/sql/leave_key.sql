-- The held event $1, under the claim with epoch $2, leaves its key: later events of the key no longer
-- wait for it. If another process has claimed the event, nothing changes.
--
-- Locks   the held row; the key is locked before.
-- Index   held_pkey (id).
-- Called  by Handler.LeaveKey, after lock_key.sql and before follow.sql, in one transaction.
UPDATE postroom.held SET chain = NULL WHERE id = $1 AND epoch = $2;
