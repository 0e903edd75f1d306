-- Give the lease of epoch $1 back, so that the next relay need not wait until the lease ends.
--
-- Locks   the one row of relay.
-- Index   none; one row.
-- Called  by Term.Release, and by Log.Lead if a term cannot begin.
UPDATE postroom.relay
SET owner = NULL, expires_at = '-infinity'
--guard:release-is-fenced true
WHERE epoch = $1;
