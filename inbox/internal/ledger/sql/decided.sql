-- Return whether the event that handler $1 decided under dedupe key $2 has digest $3. The result is
-- also true if the event's inbox row has no digest, because Subscription.DedupeKey made the key, or
-- if there is no inbox row.
--
-- Locks   none.
-- Index   inbox's primary key.
-- Called  by DB.Same and Accepts.compare, for an event that is decided already.
SELECT NOT EXISTS (SELECT FROM postroom.inbox
                   WHERE handler = $1 AND dedupe_key = $2 AND digest <> $3);
