-- The complete dead events that match the filter $1 to $11, as JSON. The event that died first
-- comes first.
--
-- Locks   none.
-- Index   those of list.sql of internal/held.
-- Called  by Store.Export.
SELECT jsonb_strip_nulls(to_jsonb(h) - 'data' - 'raw_headers' - 'fingerprint' - 'epoch' - 'next_at' - 'claimed_by')
           || jsonb_build_object('cause', encode(fingerprint, 'hex')) AS properties,
       data, raw_headers
FROM postroom.dead_letters($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) h
ORDER BY dead_at, id;
