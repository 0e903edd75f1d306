-- Record that handler $1 has to read its stream again, from the first message after sequence $3.
-- $2 is when that stream was created. If the floor is lower already, it stays. floor_at stays, too:
-- every message that the stream stored before floor_at was decided, or is above the new floor. If
-- the floor becomes lower, the handler decided events above the new floor, and their inbox rows may
-- have expired. If it stays, the handler may have decided events above it, too, and if rows of the
-- handler have expired, perhaps theirs have. In both cases the limit of age then applies to all
-- events. The statement returns the sequence up to which an event may be of any age.
--
-- Locks   the handler's row.
-- Index   the primary keys of subscription and dedupe_window.
-- Called  by Records.Lower.
UPDATE postroom.subscription
--guard:a-lower-floor-ends-the-exemption-of-the-backfill = @1
SET floor = least(floor, $3), backfill_through = CASE WHEN floor > $3 THEN 0
        --guard:a-consumer-that-is-created-again-exempts-no-decided-event false
        WHEN EXISTS (SELECT FROM postroom.dedupe_window w WHERE w.handler = $1 AND w.expired_before IS NOT NULL) THEN 0
        ELSE backfill_through END
WHERE handler = $1 AND stream_created = $2
RETURNING backfill_through;
