-- Make the events $1 due at $2, or now if $2 is NULL or has passed. A scheduled outgoing event was
-- never published, so its logged_at becomes the new time. If the claim of an event ran out, the
-- event may have ended its process: from now on the event runs alone. The new epoch ends that
-- claim: if the process still runs, it cannot settle the event.
--
-- Locks   the held rows, which are locked already.
-- Index   held_pkey (id).
-- Called  by action.step, after lock.sql.
UPDATE postroom.held
SET next_at = greatest($2::timestamptz, clock_timestamp()),
    logged_at = CASE WHEN handler = 'outbox' AND class IS NULL AND chain IS NULL THEN greatest($2::timestamptz, clock_timestamp()) ELSE logged_at END,
    claimed_by = NULL, solitary = solitary OR claimed_by IS NOT NULL,
    --guard:a-move-ends-former-claims remove
    epoch = epoch + 1
WHERE id = ANY ($1::bigint[]);
