-- What becomes of a row of the log that no event can be. The database takes the word of
-- a writer that says it has checked its rows, so the columns can hold texts of any
-- length, times without end, and headers that are no object. The relay refuses such a
-- row, and holds it in a form that every table, index, list and program takes.
--
-- Constraints of the log would keep such rows out, and cost each producer: one of six
-- comparisons makes an insert of 12 µs one of 21. Rows that are there already would have
-- to be taken care of all the same.
--
-- Additive: code of version 16 goes on. Its relay stops at such a row, as it did.

-- The beginning of a text that is longer than it may be, with its length and a digest of
-- it; any other as it is. What is cut is still too long for an event, and so is refused
-- again where somebody has it published.
CREATE FUNCTION postroom.clipped(value text, most int)
RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
    SELECT CASE WHEN octet_length($1) <= $2 THEN $1
                ELSE left($1, $2) || '… (' || octet_length($1)::text || ' bytes, sha256 ' || left(encode(sha256(convert_to($1, 'UTF8')), 'hex'), 16) || ')' END
$$;
COMMENT ON FUNCTION postroom.clipped(text, int) IS
    'The text, or where it has more bytes than given its beginning, its length and a digest of it.';

-- A time that can be sent and read by every program, NULL for any other.
CREATE FUNCTION postroom.clamped(at timestamptz)
RETURNS timestamptz
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
    SELECT CASE WHEN $1 <@ tstzrange('0001-01-01 00:00:00+00', '10000-01-01 00:00:00+00') THEN $1 END
$$;
COMMENT ON FUNCTION postroom.clamped(timestamptz) IS
    'The time, or NULL where it is outside the years 1 to 9999.';

-- Whoever may read the log may call them, also where functions are not for everybody.
GRANT EXECUTE ON FUNCTION postroom.clipped(text, int), postroom.clamped(timestamptz) TO PUBLIC;

COMMENT ON COLUMN postroom.held.raw_headers IS
    'The message''s headers as they came, for one that is no event; data is its body. Of an outgoing event, the columns of the log whose values do not fit, as JSON.';
