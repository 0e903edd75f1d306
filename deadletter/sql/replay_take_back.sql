-- Make the events $2 of replay $1 dead again, as they were before the release, if no process runs
-- them and they have not died meanwhile. The epoch rises, so that a process whose claim has run out
-- can change nothing. The event of such a claim may have ended the process, so it runs alone from
-- now on. The statement returns how many events it made dead. The rows of replay_event have not changed
-- since the caller read them, because only a process that has locked the replay changes them.
--
-- Locks   the held rows and the rows of replay_event. The caller has already locked the replay and the keys.
-- Index   held_pkey (id), replay_event's unique (replay, held).
-- Called  by replayStep.takeBack, after keys_lock.sql.
WITH withdrawn AS (
    UPDATE postroom.held
    --guard:what-is-taken-back-is-as-it-was 1.2 = now()
    --guard:a-replay-that-is-taken-back-holds-up-no-event 3 remove
    SET dead_at = i.dead_at, next_at = NULL, chain = CASE WHEN i.chain IS NULL THEN held.chain END,
        --guard:what-is-taken-back-ends-former-claims 1 remove
        epoch = held.epoch + 1, claimed_by = NULL, solitary = solitary OR claimed_by IS NOT NULL
    FROM postroom.replay_event i
    --guard:what-died-is-not-taken-back 2 true
    WHERE held.id = ANY ($2::bigint[]) AND held.dead_at IS NULL
      --guard:what-began-is-not-taken-back true
      AND (held.claimed_by IS NULL OR held.next_at <= clock_timestamp())
      AND i.replay = $1 AND i.held = held.id
    RETURNING held.id
), noted AS (
    UPDATE postroom.replay_event i SET outcome = 'withdrawn', ended_at = now()
    FROM withdrawn
    WHERE i.replay = $1 AND i.held = withdrawn.id
    RETURNING 1
)
SELECT count(*) FROM noted;
