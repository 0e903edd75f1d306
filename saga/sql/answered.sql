-- When the next attempt is due at the held events that have the key $1 and one of the types $2, were
-- written before $3, and are not dead: the latest of these times, and never a past one. The time of a
-- claimed event is the end of the claim. The result is NULL if there is no such event.
--
-- Locks   none.
-- Index   held_key (left(key, 255)).
-- Called  by table.answered.
SELECT max(greatest(next_at, clock_timestamp())) FROM postroom.held
WHERE left(key, 255) = left($1::text, 255) AND key = $1::text AND type = ANY ($2::text[])
  --guard:an-answer-that-came-late-is-not-waited-for = $3::timestamptz IS NOT NULL
  AND logged_at <= $3
  --guard:a-dead-answer-is-not-waited-for true
  AND dead_at IS NULL
