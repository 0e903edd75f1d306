-- In how many seconds the next event of handlers $1 is due, and whether one that
-- has to run alone is due now.
--
-- Locks   none.
-- Index   held_due (handler, next_at, pos), held_alone (handler, next_at), one entry of each for a handler.
-- Called  by runner.claim.
SELECT extract(epoch FROM min(next.next_at) - now())::float8 AS wait, coalesce(bool_or(alone.due), false) AS alone
FROM unnest($1::text[]) AS h (handler)
LEFT JOIN LATERAL (SELECT next_at FROM postroom.held
                   WHERE held.handler = h.handler AND next_at IS NOT NULL
                   ORDER BY next_at LIMIT 1) next ON true
LEFT JOIN LATERAL (SELECT true AS due FROM postroom.held
                   WHERE held.handler = h.handler AND next_at <= now() AND (solitary OR claimed_by IS NOT NULL)
                   ORDER BY next_at LIMIT 1) alone ON true;
