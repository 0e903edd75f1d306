-- Release the events $2 of replay $1, each with $3 more attempts. The first event of a key is due
-- at once, and the other events of the key wait behind it. An outgoing event gets a new message id.
-- If $4 is true, its log time becomes the current time. The epoch rises, so that a process that
-- claimed the event before it became dead can change nothing. replay_event keeps the failures so far,
-- because the row of held is removed if the event succeeds. The statement returns how many events
-- it released, and how many it did not release, because they were no longer dead or were discarded.
--
-- Locks   the held rows and the rows of replay_event. The caller has already locked the keys and the row of relay.
-- Index   held_pkey (id), held_chain_pos (handler, chain, pos), replay_event's unique (replay, held).
-- Called  by replayStep.release, after replay_next.sql, relay_lock.sql and keys_lock.sql.
WITH wanted AS (
    SELECT held.id, held.handler, held.pos, held.failures, coalesce(i.chain, held.chain) AS chain
    FROM pg_catalog.unnest($2::bigint[]) AS w (id)
    --guard:a-release-is-of-the-replay 2 true
    JOIN postroom.held ON held.id = w.id AND held.replay = $1
    JOIN postroom.replay_event i ON i.replay = $1 AND i.held = held.id
), placed AS (
    SELECT *, chain IS NULL
              --guard:a-release-keeps-the-order-of-a-key true
              OR row_number() OVER (PARTITION BY handler, chain ORDER BY pos) = 1
                 AND NOT EXISTS (SELECT FROM postroom.held o
                                 --guard:a-release-waits-for-what-is-before 3.1 false
                                 --guard:a-release-waits-for-what-is-due 3.2 false
                                 WHERE o.handler = wanted.handler AND o.chain = wanted.chain AND (o.pos < wanted.pos OR o.next_at IS NOT NULL)) AS first
    FROM wanted
), released AS (
    UPDATE postroom.held
    --guard:a-release-ends-former-claims 4 remove
    SET dead_at = NULL, next_at = CASE WHEN placed.first THEN now() END, chain = placed.chain, epoch = epoch + 1, snoozed_at = NULL,
        --guard:an-outgoing-replay-has-its-own-id = @1
        last_attempt = attempts + $3, replays = replays + (held.handler = 'outbox')::int,
        --guard:as-new-is-for-outgoing-events 2.1.2 true
        logged_at = CASE WHEN $4 AND held.handler = 'outbox' THEN now() ELSE logged_at END
    FROM placed
    --guard:a-release-is-of-what-is-dead 2 true
    WHERE held.id = placed.id AND held.dead_at IS NOT NULL
    RETURNING held.id, placed.failures
), noted AS (
    UPDATE postroom.replay_event i
    SET released_at = CASE WHEN released.id IS NOT NULL THEN now() END,
        failures = coalesce(released.failures, i.failures),
        --guard:what-was-discarded-is-said-to-be 2 = CASE WHEN @1 THEN NULL ELSE @5 END
        outcome = CASE WHEN released.id IS NOT NULL THEN NULL WHEN archive.id IS NOT NULL THEN 'discarded' ELSE 'not_dead' END,
        ended_at = CASE WHEN released.id IS NULL THEN now() END
    FROM pg_catalog.unnest($2::bigint[]) AS w (id)
    LEFT JOIN released ON released.id = w.id
    LEFT JOIN postroom.archive ON archive.id = w.id
    WHERE i.replay = $1 AND i.held = w.id
    RETURNING i.released_at IS NOT NULL AS released
)
SELECT count(*) FILTER (WHERE released), count(*) FILTER (WHERE NOT released) FROM noted;
