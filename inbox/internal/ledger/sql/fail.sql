-- Record that an attempt at the held event $1 failed, under the claim with epoch $2. If the
-- statement is repeated because its answer was lost, it changes nothing the second time.
--
-- $3 the time from now until the next attempt; NULL: there is none   $4 attempts made
-- $5 class   $6 cause   $7 the failure; $6 and $7 are NULL if the row has the failure
-- already   $8 true: later events of the event's key do not wait for the event
-- $9 true: the attempt counts as snoozed. Then, if the class of the last failure is snoozed,
-- $7 replaces that failure, so that other failures stay among the last ten
-- $10 NULL, or the id of a transaction: if it committed, the statement changes nothing, because
-- the event must not be tried again
--
-- Locks   the held row.
-- Index   held_pkey (id).
-- Called  by Handler.Fail, Handler.FailAlone and Handler.FailIn.
UPDATE postroom.held
SET next_at = now() + $3::interval,
    dead_at = CASE WHEN $3::interval IS NULL THEN now() END,
    --guard:an-attempt-that-ended-is-no-death 2 remove
    attempts = $4, deaths = 0, class = $5, cause = coalesce($6, cause),
    failures = coalesce(
        CASE WHEN $9::bool AND failures -> -1 ->> 'class' = 'snoozed' THEN failures - -1
             WHEN jsonb_array_length(failures) >= 10 THEN failures - 0 ELSE coalesce(failures, '[]') END
        || ($7::jsonb || pg_catalog.jsonb_build_object('at', now())), failures),
    first_failed_at = coalesce(first_failed_at, now()), snoozed_at = CASE WHEN $9::bool THEN coalesce(snoozed_at, now()) END,
    claimed_by = NULL, chain = CASE WHEN $8::bool THEN NULL ELSE chain END
--guard:a-failure-is-noted-by-the-owner-of-the-claim 2 true
--guard:a-recorded-failure-is-not-recorded-again 3 true
WHERE id = $1 AND epoch = $2 AND claimed_by IS NOT NULL
  AND ($10::text IS NULL OR pg_xact_status($10::text::xid8) IS DISTINCT FROM 'committed');
