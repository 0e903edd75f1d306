-- Remove the replays that ended before $1, and their rows of job_item. The audit keeps all actions.
--
-- Locks   the removed rows.
-- Index   none of job, which has few rows; job_item_pkey (job, n).
-- Called  by Store.Purge.

--guard:purge-keeps-young-replays = ended_at IS NOT NULL AND $1::timestamptz IS NOT NULL
DELETE FROM postroom.job WHERE ended_at < $1;
