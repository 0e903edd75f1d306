-- Return in how many seconds the next event of handlers $1 is due, and whether an event that has to
-- run alone is due now. $2 and $3 are the types and subjects that this process handles, and $4 is
-- $7 of claim.sql.
--
-- Locks   none.
-- Index   held_due (handler, next_at, pos) and held_alone (handler, next_at), usually one entry
--         of each index for each handler.
-- Called  by Claims.Claim.
SELECT extract(epoch FROM min(next.next_at) - now())::float8 AS wait, coalesce(bool_or(alone.due), false) AS alone
FROM unnest($1::text[], $2::text[], $3::text[], $4::int[]) AS h (handler, types, subjects, spared)
LEFT JOIN LATERAL (SELECT next_at FROM postroom.held
                   WHERE held.handler = h.handler AND next_at > now()
                   ORDER BY next_at LIMIT 1) next ON true
LEFT JOIN LATERAL (SELECT true AS due FROM postroom.held
                   WHERE held.handler = h.handler AND next_at <= now() AND h.spared >= 0 AND (solitary OR claimed_by IS NOT NULL AND deaths >= h.spared)
                     AND (h.types IS NULL OR raw_headers IS NOT NULL OR type = ANY (string_to_array(h.types, ' ')))
                     AND (h.subjects IS NULL OR pos IS NULL OR subject ~ h.subjects)
                   ORDER BY next_at LIMIT 1) alone ON true;
