-- Record that steps are done, with their results. The claim is not checked, because the call
-- was made in any case. Each array has one element for each step: $1 handler   $2 dedupe key
-- $3 step   $4 revision   $5 key for the vendor (the called system)   $6 result
--
-- If another process recorded a result of the step earlier, that result stays. The statement
-- returns for each step, in the order of the arrays, whether a different result is recorded, and if
-- so, the recorded result.
--
-- Locks   the receipt.
-- Index   receipt's primary key.
-- Called  by Receipts.finish, after plan.sql.
WITH step AS (
    SELECT *
    FROM unnest($1::text[], $2::text[], $3::text[], $4::int[], $5::text[], $6::bytea[])
        WITH ORDINALITY AS s (handler, dedupe_key, step, revision, key, result, n)
), recorded AS (
    INSERT INTO postroom.receipt AS r (handler, dedupe_key, step, revision, key, done_at, result)
    SELECT handler, dedupe_key, step, revision, key, now(), result FROM step
    ON CONFLICT (handler, dedupe_key, step, revision) DO UPDATE
    SET done_at = coalesce(r.done_at, excluded.done_at),
        --guard:the-first-recorded-result-stays 2 = @2
        result = CASE WHEN r.done_at IS NULL THEN excluded.result ELSE r.result END
    RETURNING handler, dedupe_key, step, revision, result
)
SELECT differs, CASE WHEN differs THEN result END
FROM (SELECT step.n, recorded.result, recorded.result IS DISTINCT FROM step.result AS differs
      FROM step
      JOIN recorded ON recorded.handler = step.handler AND recorded.dedupe_key = step.dedupe_key
                   AND recorded.step = step.step AND recorded.revision = step.revision) AS s
ORDER BY n;
