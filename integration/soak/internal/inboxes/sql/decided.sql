-- Insert $1 inbox rows of handler $2 for events of source $3. The ids of the events rise with time:
-- they are UUIDs of version 7, like the ids that producers make.
--
-- $4 age of the first row   $5 age of the last
--
-- Locks   the new rows.
-- Called  by database.decided.
INSERT INTO postroom.inbox (handler, dedupe_key, digest, at)
SELECT $2, $3 || ' ' || substr(ms, 1, 8) || '-' || substr(ms, 9) || '-7' || substr(sum, 1, 3) || '-a' || substr(sum, 4, 3) || '-' || substr(sum, 7, 12),
       decode(sum, 'hex'), at
FROM (
    SELECT n, at, lpad(to_hex(floor(extract(epoch FROM at) * 1000)::bigint), 12, '0') AS ms, md5(n::text) AS sum
    FROM (
        SELECT n, now() - $4::interval + ($4::interval - $5::interval) * (n / $1::float8) AS at
        FROM generate_series(1, $1::int) n
    ) times
) events
ORDER BY n;
