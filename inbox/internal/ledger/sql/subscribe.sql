-- Record that handler $1 reads stream $2, which was created at $3: the event types $4 (NULL: all
-- types on its subjects) and the subjects $7. A new handler begins after sequence $5, and up to
-- sequence $6 an event may be of any age. But if the sweep has removed inbox rows of the handler,
-- perhaps the handler is not new, and its row here was deleted. Then the limit of age applies to
-- all events. The statement adds types and subjects and never removes any, because a process of
-- another version may ask for them. If it adds a subject, the term of an ordered handler's reader
-- ends, and the next reader begins at the floor. $8 says whether the handler is ordered, and $9 whether
-- a function of the subscription makes its dedupe keys. The statement also returns whether an ordered
-- reader recorded the floor, and the subjects that the row had before; NULL: it had no row.
--
-- Locks   the handler's row.
-- Index   the primary keys of subscription and dedupe_window.
-- Called  by Records.Subscribe.
INSERT INTO postroom.subscription AS s (handler, stream, stream_created, types, floor, backfill_through, subjects, ordered, own_keys)
VALUES ($1::text, $2, $3, $4, $5,
        --guard:a-handler-whose-row-was-deleted-is-not-new 1 = @3
        CASE WHEN EXISTS (SELECT FROM postroom.dedupe_window w WHERE w.handler = $1 AND w.expired_before IS NOT NULL) THEN 0 ELSE $6::bigint END, $7, $8, $9)
ON CONFLICT (handler) DO UPDATE
SET types = CASE WHEN s.types IS NOT NULL AND excluded.types IS NOT NULL
                 THEN ARRAY(SELECT DISTINCT pg_catalog.unnest(s.types OPERATOR(pg_catalog.||) excluded.types) ORDER BY 1) END,
    subjects = ARRAY(SELECT DISTINCT pg_catalog.unnest(s.subjects OPERATOR(pg_catalog.||) excluded.subjects) ORDER BY 1),
    --guard:the-row-says-whether-a-handler-is-ordered-now 2 = s.ordered
    ordered = excluded.ordered,
    --guard:keys-of-an-earlier-version-stay-recorded 2 = s.own_keys
    own_keys = s.own_keys OR excluded.own_keys,
    epoch = s.epoch + (NOT s.subjects OPERATOR(pg_catalog.@>) excluded.subjects)::int,
    reader = CASE WHEN s.subjects OPERATOR(pg_catalog.@>) excluded.subjects THEN s.reader END,
    reader_until = CASE WHEN s.subjects OPERATOR(pg_catalog.@>) excluded.subjects THEN s.reader_until END
RETURNING stream, stream_created, types, floor, floor_at, backfill_through, created_at > now() - interval '1 minute' AS is_new, floor_stored_at IS NOT NULL AS in_order,
          (SELECT o.subjects FROM postroom.subscription o WHERE o.handler = $1) AS subjects_before;
