-- How many of the first $12 discarded events of the list match the filter $1 to $11, and how many
-- events the statement read.
--
-- Locks   none.
-- Index   those of list_discarded.sql; the server reads only the index if it has all columns of the filter.
-- Called  by reader.count.
SELECT count(*) FILTER (WHERE wanted), count(*)
FROM (
    SELECT ($3::text IS NULL OR type = $3) AND ($4::text IS NULL OR key = $4) AND ($5::text IS NULL OR class = $5)
              AND ($7::text IS NULL OR source = $7)
              AND ($9::text IS NULL OR position(pg_catalog.convert_to($9, 'UTF8') IN data) > 0
                   OR EXISTS (SELECT FROM jsonb_array_elements(failures) f WHERE strpos(lower(f ->> 'text'), lower($9)) > 0)) AS wanted
    FROM (SELECT * FROM postroom.discarded($1, $2, NULL, NULL, NULL, $6, NULL, $8, NULL, $10, $11)
          ORDER BY discarded_at DESC, id DESC
          LIMIT $12) looked
) judged;
