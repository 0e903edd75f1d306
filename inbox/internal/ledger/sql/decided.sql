-- Whether the event that handler $1 decided under dedupe key $2 has digest $3. A row without
-- a digest was decided under a key of Subscription.DedupeKey.
--
-- Locks   none.
-- Index   inbox's primary key.
-- Called  by DB.Same, for an event that is decided already.
SELECT NOT EXISTS (SELECT FROM postroom.inbox
                   WHERE handler = $1 AND dedupe_key = $2 AND digest <> $3);
