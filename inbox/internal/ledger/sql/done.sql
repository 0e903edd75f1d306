-- Record that steps are done, with their results. The claim is not checked, because the call
-- was made in any case. An element of each array is one step: $1 handler   $2 dedupe key
-- $3 step   $4 revision   $5 key for the vendor   $6 result
--
-- Locks   the receipt.
-- Index   receipt's primary key.
-- Called  by Receipts.finish, after plan.sql.
INSERT INTO postroom.receipt (handler, dedupe_key, step, revision, key, done_at, result)
SELECT handler, dedupe_key, step, revision, key, now(), result
FROM unnest($1::text[], $2::text[], $3::text[], $4::int[], $5::text[], $6::bytea[]) AS s (handler, dedupe_key, step, revision, key, result)
ON CONFLICT (handler, dedupe_key, step, revision) DO UPDATE
SET done_at = now(), result = excluded.result
WHERE receipt.done_at IS NULL;
