-- Record that steps begin, each for a held event that is still claimed. Each array has one element
-- for each step: $1 handler   $2 dedupe key   $3 step   $4 revision   $5 key for the vendor (the
-- called system)   $6 for how long after its first start the step may be called again
-- $7 held event   $8 epoch of the claim   $9 id of the call. The statement may be repeated, because
-- its answer was lost. If the only call of a step is $9, that call was not made yet, so it may be made.
--
-- The statement returns for each step, in the order of the arrays, what to do:
--   call     the beginning is recorded: make the call
--   done     the step was done earlier, in any revision; the row has its result
--   unknown  the step began and its outcome is not known, and perhaps the vendor does not
--            recognise a repeated call
--   again    another process has just begun or finished the step: run this statement again
--   lost     another process has claimed the event, or the event is settled
--
-- Locks   the receipt, and the inbox row, which other transactions cannot remove meanwhile.
-- Index   receipt's primary key, held_pkey (id).
-- Called  by Receipts.start, after plan.sql.
WITH step AS (
    SELECT *
    FROM unnest($1::text[], $2::text[], $3::text[], $4::int[], $5::text[], $6::interval[], $7::bigint[], $8::bigint[], $9::uuid[])
        WITH ORDINALITY AS s (handler, dedupe_key, step, revision, key, key_window, id, epoch, call, n)
), seen AS (
    SELECT s.*, EXISTS (SELECT FROM postroom.held WHERE held.id = s.id AND held.epoch = s.epoch) AS claimed,
           done.done_at IS NOT NULL AS done, done.result,
           unsure.started_at, unsure.key AS called_as, unsure.revision AS called_in, unsure.unanswered, unsure.last_call
    FROM step s
    LEFT JOIN LATERAL (SELECT r.done_at, r.result FROM postroom.receipt r
                       WHERE r.handler = s.handler AND r.dedupe_key = s.dedupe_key AND r.step = s.step AND r.done_at IS NOT NULL
                       ORDER BY r.revision DESC LIMIT 1) done ON true
    LEFT JOIN LATERAL (SELECT r.started_at, r.key, r.revision, r.unanswered, r.last_call FROM postroom.receipt r
                       WHERE r.handler = s.handler AND r.dedupe_key = s.dedupe_key AND r.step = s.step AND r.done_at IS NULL
                         AND (r.revision <> s.revision OR r.started_at + s.key_window <= now())
                         --guard:a-repeated-start-knows-its-call = true
                         AND (r.unanswered > 1 OR r.last_call IS DISTINCT FROM s.call)
                       ORDER BY r.revision DESC LIMIT 1) unsure ON true
), started AS (
    INSERT INTO postroom.receipt (handler, dedupe_key, step, revision, key, last_call)
    SELECT handler, dedupe_key, step, revision, key, call FROM seen
    WHERE claimed AND NOT done AND started_at IS NULL
    ON CONFLICT (handler, dedupe_key, step, revision) DO UPDATE
    --guard:a-repeated-start-is-one-call 2.2 = 1
    SET unanswered = receipt.unanswered + (receipt.last_call IS DISTINCT FROM excluded.last_call)::int, -- if the statement is repeated, it adds no call
        last_call = excluded.last_call
    WHERE receipt.done_at IS NULL
      AND (receipt.unanswered = 1 AND receipt.last_call = excluded.last_call
        OR receipt.started_at + (SELECT s.key_window FROM step s -- the CTE seen may not have seen this receipt
                                 WHERE s.handler = receipt.handler AND s.dedupe_key = receipt.dedupe_key
                                   AND s.step = receipt.step AND s.revision = receipt.revision) > now())
    RETURNING handler, dedupe_key, step
)
SELECT CASE WHEN seen.done THEN 'done' WHEN NOT seen.claimed THEN 'lost' WHEN seen.started_at IS NOT NULL THEN 'unknown'
            WHEN started.step IS NOT NULL THEN 'call' ELSE 'again' END AS verdict,
       seen.result, seen.started_at, seen.called_as, seen.called_in, seen.unanswered, seen.last_call::text
FROM seen
LEFT JOIN started ON started.handler = seen.handler AND started.dedupe_key = seen.dedupe_key AND started.step = seen.step
ORDER BY seen.n;
